/*
 * secret.c
 *	  Random tokens, comparisons that tell nothing by their time, and memory
 *	  for passwords that is never swapped or dumped.
 *
 * Passwords are in slots of one locked mapping.  Where the limit of locked
 * memory is too low, the log says so and the program goes on.  libpq keeps a
 * copy of its own while a connection is open.
 */
#include "secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "buf.h"

#define SLOT_SIZE (MAX_PASSWORD + 1)

static char *slots = NULL;
static char *used = NULL;
static int	nslots = 0;

bool
secrets_open(int count)
{
	size_t		size = (size_t) count * SLOT_SIZE;
	struct rlimit no_core = {0, 0};

	setrlimit(RLIMIT_CORE, &no_core);
	prctl(PR_SET_DUMPABLE, 0);
	slots = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (slots == MAP_FAILED)
		return false;
	madvise(slots, size, MADV_DONTDUMP);
	if (mlock(slots, size) != 0)
		log_line("passwords may be swapped: could not lock %zu kB of memory: %s", size / 1024, strerror(errno));
	used = mem_zero((size_t) count);
	nslots = count;
	return true;
}

char *
secret_keep(const char *password)
{
	size_t		len = strlen(password);
	int			i;

	for (i = 0; i < nslots && len < SLOT_SIZE; i++)
	{
		if (!used[i])
		{
			used[i] = 1;
			return memcpy(slots + (size_t) i * SLOT_SIZE, password, len + 1);
		}
	}
	return NULL;
}

void
secret_drop(char *password)
{
	if (!password)
		return;
	explicit_bzero(password, SLOT_SIZE);
	used[(password - slots) / SLOT_SIZE] = 0;
}

void
token_make(char token[TOKEN_LENGTH + 1])
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	unsigned char bytes[TOKEN_BYTES + 1] = {0};
	int			i;

	if (getrandom(bytes, TOKEN_BYTES, 0) != TOKEN_BYTES)
	{
		log_line("no random bytes: %s", strerror(errno));
		exit(1);
	}
	for (i = 0; i < TOKEN_LENGTH; i++)
	{
		int			bit = i * 6;
		unsigned	pair = (unsigned) bytes[bit / 8] << 8 | bytes[bit / 8 + 1];

		token[i] = digits[(pair >> (10 - bit % 8)) & 63];
	}
	token[TOKEN_LENGTH] = '\0';
	explicit_bzero(bytes, sizeof(bytes));
}

bool
same_secret(const char *a, const char *b)
{
	size_t		a_len = strlen(a);
	size_t		b_len = strlen(b);
	volatile unsigned char differ = a_len != b_len;
	size_t		i;

	for (i = 0; i < a_len; i++)
		differ |= (unsigned char) (a[i] ^ b[b_len ? i % b_len : 0]);
	return differ == 0;
}
