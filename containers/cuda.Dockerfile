# Workbench on NVIDIA GPUs: the demo, and JupyterLab with the panel.
#
#   docker build --file containers/cuda.Dockerfile --tag workbench-cuda .
#   docker run --rm --gpus all workbench-cuda workbench sweep search_spaces/digits.yaml
#   docker run --rm --gpus all --publish 127.0.0.1:8888:8888 workbench-cuda
#
# torch brings the CUDA libraries. The host needs the NVIDIA driver and the NVIDIA Container Toolkit.
# This image has not been built by the project's tests. Its pip steps were run in an empty environment.
FROM python:3.13-slim

ENV RAY_USAGE_STATS_ENABLED=0 PIP_NO_CACHE_DIR=1
RUN useradd --create-home worker
WORKDIR /home/worker/workbench

COPY constraints.txt requirements.lock ./
RUN pip install "$(grep '^torch==' constraints.txt)"
RUN pip install --no-deps --require-hashes --requirement requirements.lock

COPY --chown=worker . .
RUN pip install --no-deps . && chown worker .

USER worker
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
