/*
 * net.h
 *	  Sockets to listen on: addresses, Unix sockets, those of systemd.
 */
#ifndef JOBQ_WEB_NET_H
#define JOBQ_WEB_NET_H

#include <stdbool.h>

/* True for "host:port", "[address]:port", "unix:/path", "systemd". */
extern bool net_is_address(const char *name);
/* True if only this machine reaches it; those of systemd are looked at when they are opened. */
extern bool net_is_local(const char *name);

/*
 * Opens the sockets of a name; false: the log says why.  found is called for
 * each of them, local: only this machine reaches it.
 */
typedef void (*ListenerFound) (int fd, bool local, void *arg);
extern bool net_listen(const char *name, ListenerFound found, void *arg);

#endif
