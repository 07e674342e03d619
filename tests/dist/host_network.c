/* A network for test hosts: TUN devices NAME0, NAME1, ... whose packets it forwards with a rate and
 * a delay, as links to one switch would. (Not every kernel has netem, which delays packets.)
 *
 *   host_network NAME COUNT MBIT_PER_S DELAY_US
 *
 * Device i is moved to the namespace of host i, which has the address 10.77.0.(i + 1). Prints
 * "ready" when the devices are there and forwards until it is ended; they go with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MOST_HOSTS   16
#define PACKET_BYTES 65536
#define QUEUE        1024 /* packets on the way from one host; more wait in its device */

typedef struct packet {
    double due; /* when it arrives */
    int to;
    size_t size;
    unsigned char *bytes;
} packet;

typedef struct wire {
    int fd;
    double sent; /* until when the packets before occupy the link to the switch */
    packet queue[QUEUE];
    size_t first;
    size_t count;
} wire;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool open_device(wire *l, const char *name, int i)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    l->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    (void)snprintf(request.ifr_name, sizeof request.ifr_name, "%s%d", name, i);
    if (l->fd < 0 || ioctl(l->fd, TUNSETIFF, &request) != 0) {
        fprintf(stderr, "host_network: cannot make the device %s%d: %s\n", name, i,
                strerror(errno));
        return false;
    }
    return true;
}

/* The host that an IPv4 packet goes to; -1: none of ours. */
static int destination(const unsigned char *bytes, size_t size, int count)
{
    bool ours = size >= 20 && bytes[0] >> 4 == 4 && bytes[16] == 10 && bytes[17] == 77 &&
                bytes[18] == 0 && bytes[19] >= 1 && bytes[19] <= count;
    return ours ? bytes[19] - 1 : -1;
}

/* Takes what a host has sent. Its packets leave one after the other and arrive in that order. */
static void take(wire *l, int count, double bytes_per_s, double delay)
{
    static unsigned char buffer[PACKET_BYTES];
    while (l->count < QUEUE) {
        ssize_t n = read(l->fd, buffer, sizeof buffer);
        if (n <= 0) {
            return;
        }
        double t = now();
        int to = destination(buffer, (size_t)n, count);
        packet *p = &l->queue[(l->first + l->count) % QUEUE];
        p->bytes = to < 0 ? NULL : malloc((size_t)n);
        if (p->bytes != NULL) {
            memcpy(p->bytes, buffer, (size_t)n);
            l->sent = (l->sent > t ? l->sent : t) + (double)n / bytes_per_s;
            p->due = l->sent + delay;
            p->to = to;
            p->size = (size_t)n;
            l->count++;
        }
    }
}

/* Hands over what has arrived. A device that is full or gone drops it, as a network does. */
static void deliver(wire *links, wire *l)
{
    for (double t = now(); l->count > 0 && l->queue[l->first].due <= t;) {
        packet *p = &l->queue[l->first];
        if (write(links[p->to].fd, p->bytes, p->size) < 0 && errno == EAGAIN) {
            return;
        }
        free(p->bytes);
        l->first = (l->first + 1) % QUEUE;
        l->count--;
    }
}

static void forward(wire *links, int count, double bytes_per_s, double delay)
{
    for (;;) {
        struct pollfd wait[MOST_HOSTS];
        double next = 1e300;
        for (int i = 0; i < count; i++) {
            wire *l = &links[i];
            wait[i] = (struct pollfd){.fd = l->fd, .events = l->count < QUEUE ? POLLIN : 0};
            if (l->count > 0 && l->queue[l->first].due < next) {
                next = l->queue[l->first].due;
            }
        }
        double left = next - now();
        struct timespec limit = {.tv_nsec = left <= 0.0  ? 0
                                            : left < 0.5 ? (long)(1e9 * left)
                                                         : 500000000};
        (void)ppoll(wait, (nfds_t)count, &limit, NULL);
        for (int i = 0; i < count; i++) {
            take(&links[i], count, bytes_per_s, delay);
            deliver(links, &links[i]);
        }
    }
}

int main(int argc, char **argv)
{
    static wire links[MOST_HOSTS];
    int count = argc == 5 ? atoi(argv[2]) : 0;
    double bytes_per_s = argc == 5 ? 1e6 / 8.0 * atof(argv[3]) : 0.0;
    if (count < 1 || count > MOST_HOSTS || bytes_per_s <= 0.0 || strlen(argv[1]) > 12) {
        fprintf(stderr, "usage: host_network NAME COUNT(1..%d) MBIT_PER_S DELAY_US\n", MOST_HOSTS);
        return 2;
    }
    (void)prctl(PR_SET_TIMERSLACK, 1);
    (void)prctl(PR_SET_PDEATHSIG, 9);
    for (int i = 0; i < count; i++) {
        if (!open_device(&links[i], argv[1], i)) {
            return 1;
        }
    }
    printf("ready\n");
    (void)fflush(stdout);
    forward(links, count, bytes_per_s, 1e-6 * atof(argv[4]));
    return 0;
}
