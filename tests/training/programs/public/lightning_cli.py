"""The options of a program with LightningCLI and the files of its CSVLogger; the network is arithmetic."""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument('subcommand', choices=['fit', 'validate', 'test', 'predict'])
parser.add_argument('--trainer.max_epochs', dest='max_epochs', type=int, default=10)
parser.add_argument('--trainer.logger', dest='logger')
parser.add_argument('--trainer.logger.save_dir', dest='save_dir')
parser.add_argument('--model.learning_rate', dest='learning_rate', type=float, default=1e-3)
parser.add_argument('--data.batch_size', dest='batch_size', type=int, default=64)
args = parser.parse_args()

assert args.logger == 'CSVLogger'
folder = os.path.join(args.save_dir, 'lightning_logs')
folder = os.path.join(folder, f'version_{len(os.listdir(folder)) if os.path.isdir(folder) else 0}')
os.makedirs(folder)
loss = 1.0
with open(os.path.join(folder, 'metrics.csv'), 'w') as file:
    file.write('epoch,step,train_loss,val_loss\n')
    for epoch in range(args.max_epochs):
        loss *= 1 - args.learning_rate
        file.write(f'{epoch},{epoch * 10 + 9},{loss},\n{epoch},{epoch * 10 + 9},,{loss + 0.1}\n')
        file.flush()
print('`Trainer.fit` stopped: `max_epochs=10` reached.')
