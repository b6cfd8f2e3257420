/*
 * check.h
 *	  Checks that print TAP.  A test program calls CHECK any number of times
 *	  and returns done().
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int	checks;
static int	failures;

static inline bool
check_(bool ok, const char *file, int line, const char *name)
{
	checks++;
	printf("%sok %d - %s\n", ok ? "" : "not ", checks, name);
	if (!ok)
	{
		failures++;
		printf("# failed at %s:%d\n", file, line);
	}
	return ok;
}

#define CHECK(condition, name) check_((condition), __FILE__, __LINE__, (name))

static inline int
done(void)
{
	printf("1..%d\n", checks);
	return failures ? 1 : 0;
}

#endif
