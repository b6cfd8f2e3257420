/*
 * address.h
 *	  Addresses of clients, and lists of trusted ones.
 */
#ifndef JOBQ_WEB_ADDRESS_H
#define JOBQ_WEB_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* An address of IPv6, or of IPv4 mapped into it, or unix_address: a Unix socket. */
typedef struct Address
{
	unsigned char bytes[16];
} Address;

typedef struct Network
{
	Address		address;
	int			bits;
} Network;

#define MAX_NETWORKS 32

typedef struct Networks
{
	Network		list[MAX_NETWORKS];
	int			count;
} Networks;

#define ADDRESS_TEXT 46

extern const Address unix_address;

extern Address address_of(const struct sockaddr *from);
extern bool address_parse(const char *s, Address *address);
extern bool same_address(const Address *a, const Address *b);
/* Returns what one client may have: its address of IPv4, or the /64 of one of IPv6. */
extern Address client_network(const Address *address);
extern bool is_loopback(const Address *address);
extern void address_text(const Address *address, char text[ADDRESS_TEXT]);
/* Parses "10.0.0.0/8, ::1, unix"; false: malformed. */
extern bool networks_parse(const char *s, Networks *networks);
extern bool networks_have(const Networks *networks, const Address *address);

/*
 * Returns the client's address behind trusted proxies: the last one in
 * X-Forwarded-For that is not trusted itself, else that of the peer.
 */
extern Address forwarded_address(const Networks *trusted, const Address *peer, const char *forwarded_for);

#endif
