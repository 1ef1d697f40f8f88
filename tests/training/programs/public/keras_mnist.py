"""A Keras script with absl-like options that prints as `model.fit(verbose=2)` does; the network is arithmetic."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument('--learning_rate', type=float, default=1e-3)
parser.add_argument('--batch_size', type=int, default=128)
parser.add_argument('--epochs', type=int, default=3)
args = parser.parse_args()

accuracy = 0.1
for epoch in range(args.epochs):
    accuracy += (1 - accuracy) * args.learning_rate
    print(f'Epoch {epoch + 1}/{args.epochs}')
    print(f'422/422 - 1s - 3ms/step - accuracy: {accuracy:.4f} - loss: {1 - accuracy:.4f} - '
          f'val_accuracy: {accuracy - 0.01:.4f} - val_loss: {1.01 - accuracy:.4f}')
print('Test loss:', 1 - accuracy)
print('Test accuracy:', accuracy)
