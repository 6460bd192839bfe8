# docker build --tag autonovel .
# docker run --rm --volume "$PWD:/work" autonovel discover photos/labelled photos/unlabelled --out runs/photos
FROM python:3.11-slim
COPY . /autonovel
RUN pip install --no-cache-dir "/autonovel[photos]"
WORKDIR /work
ENTRYPOINT ["autonovel"]
