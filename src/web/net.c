/*
 * net.c
 *	  Sockets to listen on: addresses, Unix sockets, those of systemd.
 *
 * A Unix socket that a dead server has left is replaced; one of a server that
 * lives is not.  Its mode is 0660: its group says who may connect.
 */
#include "net.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "address.h"
#include "buf.h"

#define BACKLOG				512
#define SYSTEMD_FIRST_FD	3
#define UNIX_MODE			0660

/* Splits "host:port" or "[host]:port"; false: neither. */
static bool
split_host(const char *name, char *host, size_t size, const char **port)
{
	const char *colon = strrchr(name, ':');
	size_t		len;

	if (!colon || colon == name)
		return false;
	len = (size_t) (colon - name);
	if (name[0] == '[' && name[len - 1] == ']')
	{
		name++;
		len -= 2;
	}
	if (len == 0 || len >= size || strspn(colon + 1, "0123456789") != strlen(colon + 1) || colon[1] == '\0' ||
		atol(colon + 1) > 65535)
		return false;
	memcpy(host, name, len);
	host[len] = '\0';
	*port = colon + 1;
	return true;
}

static const char *
unix_path(const char *name)
{
	return strncmp(name, "unix:/", 6) == 0 ? name + 5 : NULL;
}

bool
net_is_address(const char *name)
{
	char		host[256];
	const char *port;
	const char *path = unix_path(name);

	if (path)
		return strlen(path) < sizeof(((struct sockaddr_un *) 0)->sun_path);
	return strcmp(name, "systemd") == 0 || split_host(name, host, sizeof(host), &port);
}

bool
net_is_local(const char *name)
{
	char		host[256];
	const char *port;
	Address		address;

	if (unix_path(name) || strcmp(name, "systemd") == 0)
		return true;
	return split_host(name, host, sizeof(host), &port) &&
		(strcmp(host, "localhost") == 0 || (address_parse(host, &address) && is_loopback(&address)));
}

static bool
cannot_listen(const char *name, const char *what)
{
	log_line("listen: \"%s\": %s: %s", name, what, strerror(errno));
	return false;
}

/* Binds and listens; returns the socket, -1: the log says why. */
static int
open_socket(const char *name, const struct sockaddr *address, socklen_t len)
{
	int			fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int			on = 1;

	if (fd < 0)
	{
		cannot_listen(name, "socket");
		return -1;
	}
	if (address->sa_family != AF_UNIX)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (address->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, address, len) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	cannot_listen(name, "bind");
	close(fd);
	return -1;
}

static bool
listen_tcp(const char *name, ListenerFound found, void *arg)
{
	char		host[256];
	const char *port;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *list;
	struct addrinfo *a;
	int			opened = 0;
	int			rc;

	split_host(name, host, sizeof(host), &port);
	rc = getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, port, &hints, &list);
	if (rc != 0)
	{
		log_line("listen: \"%s\": %s", name, gai_strerror(rc));
		return false;
	}
	for (a = list; a; a = a->ai_next)
	{
		int			fd = open_socket(name, a->ai_addr, a->ai_addrlen);

		if (fd >= 0)
		{
			found(fd, net_is_local(name), arg);
			opened++;
		}
	}
	freeaddrinfo(list);
	return opened > 0;
}

/* Removes the socket that a dead server has left. */
static void
remove_dead_socket(const struct sockaddr_un *address)
{
	struct stat st;
	int			fd;

	if (lstat(address->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *) address, sizeof(*address)) != 0 && errno == ECONNREFUSED)
		unlink(address->sun_path);
	if (fd >= 0)
		close(fd);
}

static bool
listen_unix(const char *name, ListenerFound found, void *arg)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			fd;

	strcpy(address.sun_path, unix_path(name));
	remove_dead_socket(&address);
	fd = open_socket(name, (const struct sockaddr *) &address, sizeof(address));
	if (fd < 0)
		return false;
	if (chmod(address.sun_path, UNIX_MODE) != 0)
		return cannot_listen(name, "chmod");
	found(fd, true, arg);
	return true;
}

/* Takes the sockets that systemd has opened: LISTEN_PID, LISTEN_FDS. */
static bool
listen_systemd(const char *name, ListenerFound found, void *arg)
{
	const char *pid = getenv("LISTEN_PID");
	const char *fds = getenv("LISTEN_FDS");
	int			count = pid && fds && atol(pid) == (long) getpid() ? atoi(fds) : 0;
	int			i;

	for (i = 0; i < count; i++)
	{
		int			fd = SYSTEMD_FIRST_FD + i;
		struct sockaddr_storage address = {0};
		socklen_t	len = sizeof(address);
		Address		at;

		if (getsockname(fd, (struct sockaddr *) &address, &len) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
			fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
			return cannot_listen(name, "descriptor of systemd");
		at = address_of((struct sockaddr *) &address);
		found(fd, is_loopback(&at), arg);
	}
	if (count <= 0)
		log_line("listen: systemd has given no socket");
	return count > 0;
}

bool
net_listen(const char *name, ListenerFound found, void *arg)
{
	if (strcmp(name, "systemd") == 0)
		return listen_systemd(name, found, arg);
	return unix_path(name) ? listen_unix(name, found, arg) : listen_tcp(name, found, arg);
}
