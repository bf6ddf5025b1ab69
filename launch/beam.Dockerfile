# What a worker of tools.prepare_corpus --runner=… runs: Beam's own worker, with this checkout and its packages. Python and
# Beam have the versions of the environment that starts the pipeline.
#   git archive HEAD | docker build -f launch/beam.Dockerfile --build-arg PYTHON=3.11 --build-arg BEAM=2.77.0 -t IMAGE -
ARG PYTHON=3.11
ARG BEAM=2.77.0
FROM apache/beam_python${PYTHON}_sdk:${BEAM}
ARG BEAM
WORKDIR /bidir
COPY requirements.txt requirements-beam.txt ./
RUN pip install --no-cache-dir -r requirements-beam.txt "apache-beam[gcp]==${BEAM}" gcsfs
COPY . .
ENV PYTHONPATH=/bidir
