# The worker, and every other command that measures on a GPU. Built from the root of the repository:
# docker build --file docker/search.Dockerfile --tag triton-tuner-search .
# torch and triton bring CUDA's libraries and ptxas along, so the smallest of NVIDIA's images does.
FROM nvidia/cuda:13.0.1-base-ubuntu24.04 AS base
# Triton compiles its launchers where they run, with gcc and Python's headers. Ubuntu keeps no old versions to pin.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*

FROM base AS build
# For the nodes of a Ray or Dask cluster: --build-arg EXTRAS=search,gpu,postgres,ray
ARG EXTRAS=search,gpu,postgres
WORKDIR /src
COPY . .
RUN python3 -m venv /opt/tuner \
 && /opt/tuner/bin/pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"
# What a CronJob runs, see docs/nightly.md.
RUN install scripts/nightly /opt/tuner/bin/nightly

FROM base
# Nothing is written but /cache, /data and /tmp: run it with a read-only root.
RUN useradd --uid 10001 --no-create-home tuner \
 && install --directory --owner tuner /cache /data /work
COPY --from=build /opt/tuner /opt/tuner
ENV PATH=/opt/tuner/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    TRITON_CACHE_DIR=/cache/triton \
    XDG_CACHE_HOME=/cache \
    TUNER_DB=/data/tuner.db
USER 10001
WORKDIR /work
VOLUME /cache /data
ENTRYPOINT ["tuner"]
CMD ["work"]
