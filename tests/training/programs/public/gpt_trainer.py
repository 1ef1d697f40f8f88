"""The configurator, the variables of torchrun and the printing of nanoGPT; the network is arithmetic."""

import os
import sys
from ast import literal_eval

out_dir = 'out'
eval_interval = 2000
log_interval = 1
always_save_checkpoint = True
init_from = 'scratch'
batch_size = 12
block_size = 1024
learning_rate = 6e-4
max_iters = 600000

for arg in sys.argv[1:]:
    if '=' not in arg:
        assert not arg.startswith('--')
        print(f"Overriding config with {arg}:")
        with open(arg) as f:
            print(f.read())
        exec(open(arg).read())
    else:
        assert arg.startswith('--')
        key, val = arg.split('=')
        key = key[2:]
        if key in globals():
            try:
                attempt = literal_eval(val)
            except (SyntaxError, ValueError):
                attempt = val
            assert type(attempt) is type(globals()[key])
            print(f"Overriding: {key} = {attempt}")
            globals()[key] = attempt
        else:
            raise ValueError(f"Unknown config key: {key}")

ddp = int(os.environ.get('RANK', -1)) != -1
master_process = not ddp or int(os.environ['RANK']) == 0
tokens_per_iter = batch_size * block_size * (int(os.environ['WORLD_SIZE']) if ddp else 1)
print(f"tokens per iteration will be: {tokens_per_iter:,}")
print("number of parameters: 10.65M")
print("num decayed parameter tensors: 26, with 10,740,096 parameters")
loss = 4.2
for iter_num in range(max_iters + 1):
    if iter_num % eval_interval == 0 and master_process:
        print(f"step {iter_num}: train loss {loss:.4f}, val loss {loss + 0.1:.4f}")
        if iter_num > 0:
            print(f"saving checkpoint to {out_dir}")
    loss *= 1 - learning_rate
    if iter_num % log_interval == 0 and master_process:
        print(f"iter {iter_num}: loss {loss:.4f}, time {12.3:.2f}ms, mfu {1.25:.2f}%")
