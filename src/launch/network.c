/* Addresses of this host and of others, and the network that they share. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/supervisor.h"

static uint32_t address_of(const struct sockaddr *a)
{
    struct sockaddr_in in;
    memcpy(&in, a, sizeof in);
    return ntohl(in.sin_addr.s_addr);
}

static bool is_usable(const struct ifaddrs *i)
{
    return i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET && i->ifa_netmask != NULL &&
           (i->ifa_flags & IFF_UP) != 0;
}

int by__launch_own_addresses(char out[BY__ADDRESSES][48], bool loopback)
{
    struct ifaddrs *all;
    int count = 0;
    if (loopback) {
        (void)snprintf(out[0], 48, "127.0.0.1");
        return 1;
    }
    if (getifaddrs(&all) != 0) {
        return 0;
    }
    for (const struct ifaddrs *i = all; i != NULL && count < BY__ADDRESSES; i = i->ifa_next) {
        struct in_addr address;
        if (is_usable(i) && (i->ifa_flags & IFF_LOOPBACK) == 0) {
            address.s_addr = htonl(address_of(i->ifa_addr));
            count += inet_ntop(AF_INET, &address, out[count], 48) != NULL ? 1 : 0;
        }
    }
    freeifaddrs(all);
    return count;
}

static bool resolve(uint32_t *out, const char *name)
{
    const struct addrinfo wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    if (getaddrinfo(name, NULL, &wanted, &found) != 0) {
        return false;
    }
    *out = address_of(found->ai_addr);
    freeaddrinfo(found);
    return true;
}

bool by__launch_host_is_here(const char *name)
{
    char own[256] = "";
    uint32_t address;
    struct ifaddrs *all;
    bool here = false;
    (void)gethostname(own, sizeof own - 1);
    if (strcmp(name, own) == 0 || strcmp(name, "localhost") == 0) {
        return true;
    }
    if (!resolve(&address, name) || getifaddrs(&all) != 0) {
        return false;
    }
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        here = here || (is_usable(i) && address_of(i->ifa_addr) == address);
    }
    freeifaddrs(all);
    return here;
}

static bool holds_all(const struct ifaddrs *i, const by_host_list *hosts)
{
    uint32_t mask = address_of(i->ifa_netmask);
    uint32_t network = address_of(i->ifa_addr) & mask;
    for (size_t k = 0; k < hosts->count; k++) {
        uint32_t address;
        if (!by__launch_host_is_here(hosts->items[k].name) &&
            (!resolve(&address, hosts->items[k].name) || (address & mask) != network)) {
            return false;
        }
    }
    return true;
}

void by__launch_common_network(char out[64], const by_host_list *hosts)
{
    struct ifaddrs *all;
    out[0] = '\0';
    if (hosts->count < 2 || getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *i = all; i != NULL && out[0] == '\0'; i = i->ifa_next) {
        if (is_usable(i) && (i->ifa_flags & IFF_LOOPBACK) == 0 && holds_all(i, hosts)) {
            char text[INET_ADDRSTRLEN];
            uint32_t mask = address_of(i->ifa_netmask);
            struct in_addr network = {.s_addr = htonl(address_of(i->ifa_addr) & mask)};
            if (inet_ntop(AF_INET, &network, text, sizeof text) != NULL) {
                (void)snprintf(out, 64, "%s/%d", text, __builtin_popcount(mask));
            }
        }
    }
    freeifaddrs(all);
}
