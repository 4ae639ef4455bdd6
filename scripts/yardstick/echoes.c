/* A load generator for WebSockets (RFC 6455): each connection sends a binary message and waits until it has come back.
   One thread and epoll. Each message is the same bytes, masked once, so that the generator costs little. It prints what
   yardstick.py reads, in wrk's words.

   Usage: echoes PORT CONNECTIONS SECONDS BYTES */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The key of RFC 6455 section 1.3, and what answers it. */
static const char handshake[] =
    "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
static const char accepted[] = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

struct connection {
  int fd;
  size_t sent, got;
  double since;
};

enum { BUCKETS = 200000 };
static unsigned buckets[BUCKETS]; /* Latencies, in units of 5 us. */
static unsigned char message[1 << 20], echo[1 << 20], in[1 << 20];
static size_t message_size, echo_size;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static void fail(const char *what) {
  printf("Socket errors: %s\n", what);
  exit(1);
}

static size_t header(unsigned char *at, size_t bytes, int mask) {
  at[0] = 0x82;
  if (bytes < 126) {
    at[1] = mask | bytes;
    return 2;
  }
  if (bytes < 65536) {
    at[1] = mask | 126;
    at[2] = bytes >> 8;
    at[3] = bytes;
    return 4;
  }
  at[1] = mask | 127;
  for (int i = 0; i < 8; i++) at[2 + i] = (uint64_t)bytes >> (56 - 8 * i);
  return 10;
}

static void make(size_t bytes) {
  static const unsigned char key[4] = {0x37, 0xfa, 0x21, 0x3d};
  size_t masked = header(message, bytes, 0x80), plain = header(echo, bytes, 0);
  memcpy(message + masked, key, 4);
  for (size_t i = 0; i < bytes; i++) {
    echo[plain + i] = 'x'; /* as floor.c answers */
    message[masked + 4 + i] = echo[plain + i] ^ key[i % 4];
  }
  message_size = masked + 4 + bytes;
  echo_size = plain + bytes;
}

static void open_connection(struct connection *connection, int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
  size_t got = 0;
  if (connect(fd, (void *)&at, sizeof at)) fail("connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (send(fd, handshake, sizeof handshake - 1, MSG_NOSIGNAL) < 0) fail("handshake");
  while (!memmem(in, got, "\r\n\r\n", 4)) {
    ssize_t count = recv(fd, in + got, 4096 - got, 0);
    if (count <= 0) fail("the handshake is not answered");
    got += count;
  }
  if (memcmp(in, "HTTP/1.1 101", 12) || !memmem(in, got, accepted, sizeof accepted - 1)) fail("the handshake is refused");
  *connection = (struct connection){.fd = fd};
}

/* Sends as much of the message as the socket takes. */
static void push(struct connection *connection) {
  while (connection->sent < message_size) {
    ssize_t count = send(connection->fd, message + connection->sent, message_size - connection->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) fail("send");
    connection->sent += count;
  }
}

static void begin(struct connection *connection) {
  connection->sent = connection->got = 0;
  connection->since = now();
  push(connection);
}

/* Receives; whether the whole echo is here. */
static int pull(struct connection *connection, int checks) {
  ssize_t count = recv(connection->fd, in, sizeof in, MSG_DONTWAIT);
  if (count < 0 && errno == EAGAIN) return 0;
  if (count <= 0) fail("the server has closed");
  if (checks && memcmp(in, echo + connection->got, count)) fail("another message has come back");
  connection->got += count;
  if (connection->got > echo_size) fail("more has come back than was sent");
  return connection->got == echo_size;
}

static double quantile(unsigned long count, double of) {
  unsigned long seen = 0;
  for (int i = 0; i < BUCKETS; i++) {
    seen += buckets[i];
    if (seen >= count * of) return i * 5e-3;
  }
  return 1000;
}

int main(int argc, char **argv) {
  static struct epoll_event ready[1024];
  if (argc != 5) {
    fprintf(stderr, "usage: echoes PORT CONNECTIONS SECONDS BYTES\n");
    return 2;
  }
  int port = atoi(argv[1]), size = atoi(argv[2]), epoll = epoll_create1(0);
  double seconds = atof(argv[3]);
  make(strtoul(argv[4], 0, 10));
  struct connection *all = calloc(size, sizeof *all);
  for (int i = 0; i < size; i++) {
    open_connection(&all[i], port);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &all[i]};
    epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event);
  }
  double start = now();
  unsigned long count = 0;
  for (int i = 0; i < size; i++) begin(&all[i]);
  while (now() < start + seconds) {
    int found = epoll_wait(epoll, ready, 1024, 100);
    for (int i = 0; i < found; i++) {
      struct connection *connection = ready[i].data.ptr;
      if (connection->sent < message_size) push(connection);
      /* Edge-triggered: until nothing is left. The first messages are compared byte by byte. */
      while (ready[i].events & EPOLLIN) {
        size_t before = connection->got;
        if (pull(connection, count < 1000)) {
          unsigned bucket = (now() - connection->since) * 2e5;
          buckets[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
          count++;
          begin(connection);
          break;
        }
        if (connection->got == before) break;
      }
    }
  }
  double took = now() - start;
  printf("  50%% %fms\n  99%% %fms\n  %lu requests in %fs\nRequests/sec: %f\n", quantile(count, 0.5),
         quantile(count, 0.99), count, took, count / took);
  return 0;
}
