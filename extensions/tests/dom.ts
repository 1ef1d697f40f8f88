// A document for tests of components; import it before anything that uses one.
import { GlobalRegistrator } from "@happy-dom/global-registrator";

const { setTimeout, clearTimeout, Response } = globalThis;
GlobalRegistrator.register({ url: "http://localhost/" });
// Node's own, which its test runner can mock.
Object.assign(globalThis, { setTimeout, clearTimeout, Response });

// It looks for a document when it is loaded.
const { configure } = await import("@testing-library/preact");
configure({ asyncUtilTimeout: 10_000 }); // a second passes on a busy machine before a page has changed
