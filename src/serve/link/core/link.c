/* Functions common to all kinds of links. */
#include "serve/link/core/link.h"

#include "serve/link/core/redis_address.h"

by_status by__link_check(const char *broker, by_error *error)
{
    by__link_redis_address address;
    if (!by__link_redis_is_address(broker)) {
        return BY_OK;
    }
    BY_TRY(by__link_redis_address_read(&address, broker, error));
    return by__link_redis_address_login(&address, by__link_redis_broker_login, error);
}

bool by__link_send(by__link *link, const json_t *message)
{
    return !link->closed && link->kind->send(link, message);
}

bool by__link_send_events(by__link *link, const char *list, size_t length)
{
    return !link->closed && link->kind->send_events(link, list, length);
}

void by__link_pause(by__link *link, bool pauses)
{
    if (!link->closed && link->kind->pause != NULL) {
        link->kind->pause(link, pauses);
    }
}

size_t by__link_unsent(const by__link *link)
{
    return link->closed ? 0 : link->kind->unsent(link);
}

void by__link_close(by__link **link)
{
    by__link *l = *link;
    *link = NULL;
    if (l != NULL && !l->closed) {
        l->closed = true;
        l->kind->close(l);
    }
}

void by__link_fail(by__link *link, const char *why)
{
    if (!link->closed) {
        by__link *closing = link;
        link->handler.lost(link->handler.user, link, why);
        by__link_close(&closing);
    }
}

void by__link_set(by__link *link, void *peer)
{
    link->peer = peer;
}

void *by__link_get(const by__link *link)
{
    return link->peer;
}
