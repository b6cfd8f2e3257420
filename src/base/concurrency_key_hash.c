/*
 * concurrency_key_hash.c
 *	  A concurrency key for the dispatcher: a hash of key and tenant.
 *
 * Every writer of a row stores it (insert_job.c, the trigger in
 * queue_triggers.c), so that one narrow index finds the jobs of a key.  Two
 * keys with one hash would wait for each other: no job runs that should not,
 * and it takes some 2^32 live keys for such a pair to be likely.  Tenants
 * choose their keys, and must not be able to choose one that has the hash of
 * another tenant's, so it is a cryptographic one, cut to 64 bits.
 */
#include "jobq.h"

#include "common/cryptohash.h"
#include "common/hashfn.h"
#include "common/sha2.h"

#include "base/concurrency_key_hash.h"

static bool
add_bytes(pg_cryptohash_ctx *ctx, const void *data, size_t len)
{
	return pg_cryptohash_update(ctx, data, len) >= 0;
}

/*
 * Adds a text after its length, so that no two pairs of texts are the same
 * bytes; NULL has a length of its own.
 */
static bool
add_text(pg_cryptohash_ctx *ctx, const text *t)
{
	int32		len = t == NULL ? -1 : (int32) VARSIZE_ANY_EXHDR(t);

	return add_bytes(ctx, &len, sizeof(len)) && (t == NULL || add_bytes(ctx, VARDATA_ANY(t), len));
}

uint64
key_hash(const text *tenant, const text *key, int level)
{
	pg_cryptohash_ctx *ctx;
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	uint64		hash;

	if (key == NULL)
		return 0;
	ctx = pg_cryptohash_create(PG_SHA256);
	if (pg_cryptohash_init(ctx) < 0 || !add_text(ctx, tenant) || !add_text(ctx, key) ||
		(level > 0 && !add_bytes(ctx, "run", 3)) || (level > 1 && !add_bytes(ctx, &level, sizeof(level))) || pg_cryptohash_final(ctx, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not hash a concurrency key: %s", pg_cryptohash_error(ctx));
	pg_cryptohash_free(ctx);
	memcpy(&hash, digest, sizeof(hash));
	return Max(hash, 1);
}

uint32
tenant_hash(const text *tenant)
{
	return tenant == NULL ? 0 : Max(hash_bytes((const unsigned char *) VARDATA_ANY(tenant), VARSIZE_ANY_EXHDR(tenant)), 1);
}
