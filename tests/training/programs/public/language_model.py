"""The options and the printing of PyTorch's word language model; the network is replaced by arithmetic."""

import argparse
import math

parser = argparse.ArgumentParser(description='PyTorch Wikitext-2 RNN/LSTM/GRU/Transformer Language Model')
parser.add_argument('--data', type=str, default='./data/wikitext-2')
parser.add_argument('--model', type=str, default='LSTM')
parser.add_argument('--emsize', type=int, default=200)
parser.add_argument('--nhid', type=int, default=200)
parser.add_argument('--lr', type=float, default=20)
parser.add_argument('--epochs', type=int, default=40)
parser.add_argument('--batch_size', type=int, default=20, metavar='N')
parser.add_argument('--dropout', type=float, default=0.2)
parser.add_argument('--tied', action='store_true')
parser.add_argument('--log-interval', type=int, default=200, metavar='N')
parser.add_argument('--save', type=str, default='model.pt')
args = parser.parse_args()

lr, loss = args.lr, 8.0
for epoch in range(1, args.epochs + 1):
    for batch in (200, 400):
        loss *= 1 - min(0.1, lr / 1000)
        print('| epoch {:3d} | {:5d}/{:5d} batches | lr {:02.2f} | ms/batch {:5.2f} | '
              'loss {:5.2f} | ppl {:8.2f}'.format(epoch, batch, 2983, lr, 5.2, loss, math.exp(loss)))
    val_loss = loss + args.dropout
    print('-' * 89)
    print('| end of epoch {:3d} | time: {:5.2f}s | valid loss {:5.2f} | '
          'valid ppl {:8.2f}'.format(epoch, 12.34, val_loss, math.exp(val_loss)))
    print('-' * 89)
print('=' * 89)
print('| End of training | test loss {:5.2f} | test ppl {:8.2f}'.format(val_loss, math.exp(val_loss)))
print('=' * 89)
