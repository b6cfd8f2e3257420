/*
 * secret.h
 *	  Random tokens, comparisons that tell nothing by their time, and memory
 *	  for passwords that is never swapped or dumped.
 */
#ifndef JOBQ_WEB_SECRET_H
#define JOBQ_WEB_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#define TOKEN_BYTES			32
#define TOKEN_LENGTH		43	/* characters of base64url */
#define MAX_PASSWORD		511

/* Reserves the memory of this many passwords. */
extern bool secrets_open(int count);
/* Returns a copy in locked memory; NULL: all of it is in use. */
extern char *secret_keep(const char *password);
extern void secret_drop(char *password);

/* Writes 256 random bits as text. */
extern void token_make(char token[TOKEN_LENGTH + 1]);
extern bool same_secret(const char *a, const char *b);

#endif
