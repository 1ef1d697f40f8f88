"""The options and the printing of the MNIST example of PyTorch; the network is replaced by arithmetic."""

import argparse


def train(args, epoch, loss):
    for batch_idx in range(0, 938, args.log_interval * 30):
        print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(
            epoch, batch_idx * args.batch_size, 60000, 100. * batch_idx / 938, loss))


def test(loss):
    correct = int(10000 * (1 - loss / 3))
    print('\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\n'.format(
        loss, correct, 10000, 100. * correct / 10000))


def main():
    parser = argparse.ArgumentParser(description='PyTorch MNIST Example')
    parser.add_argument('--batch-size', type=int, default=64, metavar='N')
    parser.add_argument('--test-batch-size', type=int, default=1000, metavar='N')
    parser.add_argument('--epochs', type=int, default=14, metavar='N')
    parser.add_argument('--lr', type=float, default=1.0, metavar='LR')
    parser.add_argument('--gamma', type=float, default=0.7, metavar='M')
    parser.add_argument('--no-accel', action='store_true')
    parser.add_argument('--dry-run', action='store_true')
    parser.add_argument('--seed', type=int, default=1, metavar='S')
    parser.add_argument('--log-interval', type=int, default=10, metavar='N')
    parser.add_argument('--save-model', action='store_true')
    args = parser.parse_args()
    loss = 2.3
    for epoch in range(1, args.epochs + 1):
        train(args, epoch, loss)
        loss *= 1 - args.lr / 4 * args.gamma ** epoch
        test(loss)


if __name__ == '__main__':
    main()
