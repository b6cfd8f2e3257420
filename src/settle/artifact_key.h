/*
 * artifact_key.h
 *	  The keys of artifacts: relative names of objects.
 */
#ifndef JOBQ_ARTIFACT_KEY_H
#define JOBQ_ARTIFACT_KEY_H

#define ARTIFACT_MAX_KEY		1024	/* bytes */
#define ARTIFACT_MAX_ELEMENT	128
#define ARTIFACT_MAX_ELEMENTS	9
#define ARTIFACT_KEY_HINT \
	"A key has one to nine elements of 1 to 128 letters, digits, \".\", \"_\" and \"-\", separated by \"/\"; none is \".\" or \"..\"."

/*
 * True if the key is one to nine elements, separated by single slashes, and
 * of at most ARTIFACT_MAX_KEY bytes.
 */
extern bool artifact_key_is_sound(const char *key);

/* True if the kind is one of "input", "output", "log". */
extern bool artifact_kind_is_known(const char *kind);
#define ARTIFACT_KINDS	"\"input\", \"output\", \"log\""

#endif
