/*
 * server.c
 *	  The server's functions for unit tests: see server.h.
 *
 * They do what their headers say, as plainly as possible.  Each context keeps
 * a list of its chunks, so that its end frees them and a sanitizer finds later
 * uses.
 */
#include "server.h"

#include "common/hashfn.h"
#include "lib/pairingheap.h"
#include "nodes/memnodes.h"
#include "nodes/pg_list.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

int64		heap_changes = 0;
int64		heap_comparisons = 0;
TimestampTz clock_now = INT64CONST(800000000000000);

TimestampTz
GetCurrentTimestamp(void)
{
	return clock_now;
}

/* ---------- errors ---------- */

bool
errstart(int elevel, const char *domain)
{
	return elevel >= ERROR;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

int
errmsg_internal(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	return 0;
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	fprintf(stderr, "\nerror at %s:%d\n", filename, lineno);
	abort();
}

#if PG_VERSION_NUM < 160000
void
ExceptionalCondition(const char *condition, const char *type, const char *file, int line)
#else
void
ExceptionalCondition(const char *condition, const char *file, int line)
#endif
{
	fprintf(stderr, "failed assertion \"%s\" at %s:%d\n", condition, file, line);
	abort();
}

/* ---------- memory ---------- */

typedef struct Chunk
{
	struct Context *context;
	struct Chunk *prev;
	struct Chunk *next;
	Size		size;
} Chunk;

typedef struct Context
{
	MemoryContextData data;		/* NULL parent: the first context */
	Chunk		chunks;			/* head of the list */
} Context;

static Context top = {.chunks = {&top, &top.chunks, &top.chunks, 0}};
MemoryContext CurrentMemoryContext = &top.data;

static Chunk *
chunk_of(void *pointer)
{
	return (Chunk *) pointer - 1;
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	Context    *c = (Context *) context;
	Chunk	   *chunk = malloc(sizeof(Chunk) + size);

	*chunk = (Chunk) {c, &c->chunks, c->chunks.next, size};
	chunk->next->prev = c->chunks.next = chunk;
	return chunk + 1;
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return memset(MemoryContextAlloc(context, size), 0, size);
}

void *
MemoryContextAllocExtended(MemoryContext context, Size size, int flags)
{
	return MemoryContextAllocZero(context, size);
}

void *
palloc(Size size)
{
	return MemoryContextAlloc(CurrentMemoryContext, size);
}

void *
palloc0(Size size)
{
	return MemoryContextAllocZero(CurrentMemoryContext, size);
}

void
pfree(void *pointer)
{
	Chunk	   *chunk = chunk_of(pointer);

	chunk->prev->next = chunk->next;
	chunk->next->prev = chunk->prev;
	free(chunk);
}

void *
repalloc(void *pointer, Size size)
{
	Chunk	   *chunk = chunk_of(pointer);
	void	   *new = MemoryContextAlloc(&chunk->context->data, size);

	memcpy(new, pointer, Min(size, chunk->size));
	pfree(pointer);
	return new;
}

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name, Size minContextSize, Size initBlockSize,
							  Size maxBlockSize)
{
	Context    *c = calloc(1, sizeof(Context));

	c->data.parent = parent;
	c->data.nextchild = parent->firstchild;
	parent->firstchild = &c->data;
	c->chunks = (Chunk) {c, &c->chunks, &c->chunks, 0};
	return &c->data;
}

MemoryContext
MemoryContextGetParent(MemoryContext context)
{
	return context->parent;
}

void
MemoryContextDelete(MemoryContext context)
{
	Context    *c = (Context *) context;
	MemoryContext *link = &context->parent->firstchild;

	while (context->firstchild != NULL)
		MemoryContextDelete(context->firstchild);
	while (*link != context)
		link = &(*link)->nextchild;
	*link = context->nextchild;
	while (c->chunks.next != &c->chunks)
		pfree(c->chunks.next + 1);
	free(c);
}

/* ---------- strings ---------- */

char *
pstrdup(const char *in)
{
	return strcpy(palloc(strlen(in) + 1), in);
}

#if !HAVE_DECL_STRLCPY
size_t
strlcpy(char *dst, const char *src, size_t size)
{
	snprintf(dst, size, "%s", src);
	return strlen(src);
}
#endif

/* ---------- lists ---------- */

List *
lappend(List *list, void *datum)
{
	if (list == NIL)
	{
		list = palloc0(sizeof(List));
		list->type = T_List;
	}
	if (list->length == list->max_length)
	{
		list->max_length = 2 * list->max_length + 1;
		list->elements = list->elements ? repalloc(list->elements, list->max_length * sizeof(ListCell)) :
			palloc(list->max_length * sizeof(ListCell));
	}
	list->elements[list->length++].ptr_value = datum;
	return list;
}

void
list_sort(List *list, list_sort_comparator compare)
{
	if (list != NIL)
		qsort(list->elements, list->length, sizeof(ListCell), (int (*) (const void *, const void *)) compare);
}

/* ---------- hash tables ---------- */

typedef struct Entry
{
	struct Entry *in_bucket;
	struct Entry *next;			/* in the order of their insertion */
} Entry;

#define NBUCKETS 8192
#define MAX_STRING_KEY 256

struct HTAB
{
	HASHCTL		ctl;
	bool		strings;
	int64		nentries;
	Entry	   *first;
	Entry	  **last;
	Entry	   *buckets[NBUCKETS];
};

uint32
hash_bytes(const unsigned char *k, int keylen)
{
	uint32		hash = 2166136261u;

	for (int i = 0; i < keylen; i++)
		hash = (hash ^ k[i]) * 16777619u;
	return hash;
}

HTAB *
hash_create(const char *tabname, long nelem, const HASHCTL *info, int flags)
{
	HTAB	   *table = MemoryContextAllocZero(info->hcxt, sizeof(HTAB));

	table->ctl = *info;
	table->strings = (flags & HASH_STRINGS) != 0;
	table->last = &table->first;
	return table;
}

void *
hash_search(HTAB *hashp, const void *keyPtr, HASHACTION action, bool *foundPtr)
{
	char		key[MAX_STRING_KEY] = "";
	Entry	  **bucket;
	Entry	   *e;

	if (hashp->strings)			/* its bytes after the end do not count */
		keyPtr = strncpy(key, keyPtr, hashp->ctl.keysize - 1);
	bucket = &hashp->buckets[hash_bytes(keyPtr, (int) hashp->ctl.keysize) % NBUCKETS];
	e = *bucket;
	while (e != NULL && memcmp(e + 1, keyPtr, hashp->ctl.keysize) != 0)
		e = e->in_bucket;
	if (foundPtr != NULL)
		*foundPtr = e != NULL;
	if (e == NULL && action == HASH_ENTER)
	{
		e = MemoryContextAlloc(hashp->ctl.hcxt, sizeof(Entry) + hashp->ctl.entrysize);
		memcpy(e + 1, keyPtr, hashp->ctl.keysize);
		*e = (Entry) {*bucket, NULL};
		*hashp->last = *bucket = e;
		hashp->last = &e->next;
		hashp->nentries++;
	}
	return e == NULL ? NULL : e + 1;
}

long
hash_get_num_entries(HTAB *hashp)
{
	return hashp->nentries;
}

void
hash_seq_init(HASH_SEQ_STATUS *status, HTAB *hashp)
{
	status->hashp = hashp;
	status->curEntry = (HASHELEMENT *) hashp->first;
}

void *
hash_seq_search(HASH_SEQ_STATUS *status)
{
	Entry	   *e = (Entry *) status->curEntry;

	if (e == NULL)
		return NULL;
	status->curEntry = (HASHELEMENT *) e->next;
	return e + 1;
}

/* ---------- pairing heaps ---------- */

pairingheap *
pairingheap_allocate(pairingheap_comparator compare, void *arg)
{
	pairingheap *heap = palloc0(sizeof(pairingheap));

	heap->ph_compare = compare;
	heap->ph_arg = arg;
	return heap;
}

/* Makes one tree of two; NULL is an empty one. */
static pairingheap_node *
merge(pairingheap *heap, pairingheap_node *a, pairingheap_node *b)
{
	pairingheap_node *larger = a;
	pairingheap_node *smaller = b;

	if (a == NULL || b == NULL)
		return a ? a : b;
	heap_comparisons++;
	if (heap->ph_compare(a, b, heap->ph_arg) < 0)
	{
		larger = b;
		smaller = a;
	}
	if (larger->first_child != NULL)
		larger->first_child->prev_or_parent = smaller;
	smaller->next_sibling = larger->first_child;
	smaller->prev_or_parent = larger;
	larger->first_child = smaller;
	larger->next_sibling = larger->prev_or_parent = NULL;
	return larger;
}

/* Makes one tree of siblings: merges them in pairs, then the pairs from the last one on. */
static pairingheap_node *
merge_siblings(pairingheap *heap, pairingheap_node *first)
{
	pairingheap_node *pairs = NULL;
	pairingheap_node *tree = NULL;

	while (first != NULL)
	{
		pairingheap_node *a = first;
		pairingheap_node *b = a->next_sibling;

		first = b ? b->next_sibling : NULL;
		a = merge(heap, a, b);
		a->next_sibling = pairs;
		pairs = a;
	}
	while (pairs != NULL)
	{
		pairingheap_node *next = pairs->next_sibling;

		tree = merge(heap, tree, pairs);
		pairs = next;
	}
	if (tree != NULL)
		tree->next_sibling = tree->prev_or_parent = NULL;
	return tree;
}

void
pairingheap_add(pairingheap *heap, pairingheap_node *node)
{
	heap_changes++;
	*node = (pairingheap_node) {0};
	heap->ph_root = merge(heap, heap->ph_root, node);
}

pairingheap_node *
pairingheap_first(pairingheap *heap)
{
	Assert(heap->ph_root != NULL);
	return heap->ph_root;
}

void
pairingheap_remove(pairingheap *heap, pairingheap_node *node)
{
	pairingheap_node *children = merge_siblings(heap, node->first_child);
	pairingheap_node *before = node->prev_or_parent;

	heap_changes++;
	if (node == heap->ph_root)
	{
		heap->ph_root = children;
		return;
	}
	if (before->first_child == node)
		before->first_child = node->next_sibling;
	else
		before->next_sibling = node->next_sibling;
	if (node->next_sibling != NULL)
		node->next_sibling->prev_or_parent = before;
	heap->ph_root = merge(heap, heap->ph_root, children);
}

/* ---------- random numbers ---------- */

static uint64 seed = 20260101;

int
random_start(int argc, char **argv, int cases)
{
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	printf("# seed %llu\n", (unsigned long long) seed);
	return argc > 1 ? atoi(argv[1]) : cases;
}

int
below(int n)
{
	seed = seed * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
	return (int) ((seed >> 33) % n);
}
