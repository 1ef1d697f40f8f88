# Workbench on the CPU: the demo, and JupyterLab with the panel.
#
#   docker build --file containers/cpu.Dockerfile --tag workbench .
#   docker run --rm workbench workbench sweep search_spaces/digits.yaml
#   docker run --rm --publish 127.0.0.1:8888:8888 workbench
#
# The index has torch with CUDA, which also runs on the CPU. For the smaller build, add
# `--build-arg TORCH_OPTIONS="--index-url URL"` with the URL that PyTorch lists for its CPU build.
# This image has not been built by the project's tests. Its pip steps were run in an empty environment.
FROM python:3.13-slim

ARG TORCH_OPTIONS=""
ENV RAY_USAGE_STATS_ENABLED=0 PIP_NO_CACHE_DIR=1
RUN useradd --create-home worker
WORKDIR /home/worker/workbench

COPY constraints.txt requirements.lock ./
RUN pip install $TORCH_OPTIONS "$(grep '^torch==' constraints.txt)"
RUN pip install --no-deps --require-hashes --requirement requirements.lock

COPY --chown=worker . .
RUN pip install --no-deps . && chown worker .

USER worker
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
