# Turnwise in a container, with the locked set:
#
#   docker build -t turnwise .
#   docker build --build-arg LOCK=requirements/gpu.lock -t turnwise:gpu .
#   docker run --rm -v turnwise-home:/turnwise/.turnwise -v "$PWD/results:/turnwise/results" turnwise ablation
#   docker run --rm --gpus all ... turnwise:gpu ablation experiments/paper/ragen.yaml --dry-run
#
# docs/many-machines.md goes on from there. Results hold the commit that they were made with, so .git is in the image.

# Any Debian with Python 3.11 and its headers. A card needs nothing of CUDA here: its libraries are in the locked set, its
# driver is the machine's.
ARG BASE=python:3.11-bookworm
FROM ${BASE}

# A compiler is for torch's compiled layers, Chromium and Java for the worlds `browser` and `sciworld`.
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends chromium-headless-shell g++ git make openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /turnwise
COPY . .
ARG LOCK=requirements/cpu.lock
RUN make setup LOCK=${LOCK}

ENV PATH=/turnwise/.venv/bin:$PATH NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["turnwise"]
CMD ["--help"]
