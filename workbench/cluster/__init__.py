"""The warm pool: the Ray head, code on other machines, and the workers that trials run on."""
