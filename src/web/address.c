/*
 * address.c
 *	  Addresses of clients, and lists of trusted ones.
 */
#include "address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* A multicast address, which no peer and no listener has. */
const Address unix_address = {{0xFF, 'u', 'n', 'i', 'x'}};

static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

Address
address_of(const struct sockaddr *from)
{
	Address		address = unix_address;

	if (from->sa_family == AF_INET6)
		memcpy(address.bytes, &((const struct sockaddr_in6 *) from)->sin6_addr, 16);
	else if (from->sa_family == AF_INET)
	{
		memcpy(address.bytes, mapped, 12);
		memcpy(address.bytes + 12, &((const struct sockaddr_in *) from)->sin_addr, 4);
	}
	return address;
}

bool
address_parse(const char *s, Address *address)
{
	*address = unix_address;
	if (strcmp(s, "unix") == 0)
		return true;
	if (inet_pton(AF_INET, s, address->bytes + 12) == 1)
	{
		memcpy(address->bytes, mapped, 12);
		return true;
	}
	return inet_pton(AF_INET6, s, address->bytes) == 1;
}

bool
same_address(const Address *a, const Address *b)
{
	return memcmp(a, b, sizeof(Address)) == 0;
}

static bool
is_mapped(const Address *address)
{
	return memcmp(address->bytes, mapped, 12) == 0;
}

static bool
is_unix(const Address *address)
{
	return same_address(address, &unix_address);
}

Address
client_network(const Address *address)
{
	Address		network = *address;

	if (!is_mapped(address) && !is_unix(address))
		memset(network.bytes + 8, 0, 8);
	return network;
}

bool
is_loopback(const Address *address)
{
	static const unsigned char one[16] = {[15] = 1};

	return is_unix(address) || memcmp(address->bytes, one, 16) == 0 ||
		(is_mapped(address) && address->bytes[12] == 127);
}

void
address_text(const Address *address, char text[ADDRESS_TEXT])
{
	if (is_unix(address))
		strcpy(text, "unix");
	else if (is_mapped(address))
		inet_ntop(AF_INET, address->bytes + 12, text, ADDRESS_TEXT);
	else
		inet_ntop(AF_INET6, address->bytes, text, ADDRESS_TEXT);
}

/* Parses "address" or "address/bits". */
static bool
network_parse(char *s, Network *network)
{
	char	   *slash = strchr(s, '/');
	int			most;

	if (slash)
		*slash++ = '\0';
	if (!address_parse(s, &network->address))
		return false;
	most = is_mapped(&network->address) ? 32 : 128;
	network->bits = most;
	if (slash)
	{
		char	   *end;
		long		bits = strtol(slash, &end, 10);

		if (end == slash || *end || bits < 0 || bits > most || strcmp(s, "unix") == 0)
			return false;
		network->bits = (int) bits;
	}
	network->bits += 128 - most;
	return true;
}

bool
networks_parse(const char *s, Networks *networks)
{
	networks->count = 0;
	while (*s)
	{
		char		word[64];
		size_t		len;

		s += strspn(s, ", \t");
		len = strcspn(s, ", \t");
		if (len == 0)
			break;
		if (len >= sizeof(word) || networks->count == MAX_NETWORKS)
			return false;
		memcpy(word, s, len);
		word[len] = '\0';
		if (!network_parse(word, &networks->list[networks->count]))
			return false;
		networks->count++;
		s += len;
	}
	return true;
}

static bool
network_has(const Network *network, const Address *address)
{
	int			whole = network->bits / 8;
	int			rest = network->bits % 8;

	return memcmp(network->address.bytes, address->bytes, (size_t) whole) == 0 &&
		(rest == 0 || ((network->address.bytes[whole] ^ address->bytes[whole]) >> (8 - rest)) == 0);
}

bool
networks_have(const Networks *networks, const Address *address)
{
	int			i;

	for (i = 0; i < networks->count; i++)
	{
		if (network_has(&networks->list[i], address))
			return true;
	}
	return false;
}

/* Parses an element of X-Forwarded-For: an address, or "[address]:port", "address:port". */
static bool
element_parse(const char *s, size_t len, Address *address)
{
	char		word[64];
	char	   *end;

	while (len > 0 && (s[len - 1] == ' ' || s[len - 1] == '\t'))
		len--;
	if (len == 0 || len >= sizeof(word))
		return false;
	memcpy(word, s, len);
	word[len] = '\0';
	if (word[0] == '[')
	{
		end = strchr(word, ']');
		if (!end)
			return false;
		*end = '\0';
		return address_parse(word + 1, address) && !is_unix(address);
	}
	end = strchr(word, ':');
	if (end && strchr(end + 1, ':') == NULL)
		*end = '\0';
	return address_parse(word, address) && !is_unix(address);
}

Address
forwarded_address(const Networks *trusted, const Address *peer, const char *forwarded_for)
{
	Address		client = *peer;
	const char *end = forwarded_for ? forwarded_for + strlen(forwarded_for) : NULL;

	while (end && networks_have(trusted, &client))
	{
		const char *start = end;
		Address		next;

		while (start > forwarded_for && start[-1] != ',')
			start--;
		if (!element_parse(start + strspn(start, " \t"), (size_t) (end - start - (long) strspn(start, " \t")), &next))
			break;
		client = next;
		end = start > forwarded_for ? start - 1 : NULL;
	}
	return client;
}
