// Ranks what the search finds: titles of pages first, then headings and text, then the Python reference.
const REFERENCE = /^reference\/python/;

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 5, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 60,
  partialTitle: 40,
  term: 5,
  partialTerm: 2,
  score: (result) => {
    const [page, , anchor, , score] = result;
    if (REFERENCE.test(page)) return score / 4;
    return anchor ? score : score + 1;
  },
};
