# train a miniature character-level shakespeare model
out_dir = 'out-shakespeare-char'
eval_interval = 5
log_interval = 1
batch_size = 64
block_size = 256
learning_rate = 1e-3
max_iters = 20
