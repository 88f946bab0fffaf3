# The service and the database commands: no torch, no triton, no compiler. Built from the root of the repository:
# docker build --file docker/serve.Dockerfile --tag triton-tuner-serve .
FROM python:3.12.11-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/tuner \
 && /opt/tuner/bin/pip install --no-cache-dir --constraint constraints.txt ".[serve,postgres]"

FROM python:3.12.11-slim-bookworm
# Nothing is written but /data, and /tmp by `serve --workers`: run it with a read-only root.
RUN useradd --uid 10001 --no-create-home tuner \
 && install --directory --owner tuner /data /work
COPY --from=build /opt/tuner /opt/tuner
ENV PATH=/opt/tuner/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    TUNER_DB=/data/tuner.db
USER 10001
WORKDIR /work
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["tuner"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
