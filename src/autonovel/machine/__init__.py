"""The machine room: device and precision, CPU, streams and threads, several processes, switches of the whole process."""
