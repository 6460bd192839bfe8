"""The machine room: device and precision, care of the CPU, streams and threads, several processes."""
