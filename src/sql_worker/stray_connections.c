/*
 * stray_connections.c
 *	  Connections that handlers open with dblink and leave open.
 *
 * Such a connection has a name, which the next job could not use, and may have
 * a transaction of its own on the other server, which no end of ours ends.
 * dblink keeps its connections where we can't reach them, so the worker ends.
 * Connections of postgres_fdw stay: their transactions end with ours.
 *
 * A database without dblink pays the test of a flag for each job.  Else, once
 * the library is loaded, the process counts its sockets after each job.
 */
#include "jobq.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include "catalog/pg_proc.h"
#include "storage/fd.h"
#include "utils/catcache.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#include "sql_worker/stray_connections.h"

#define DESCRIPTORS "/dev/fd"

static bool installed;			/* valid if known */
static bool known = false;
static int	sockets_before;
static bool found = false;

static void
functions_changed(Datum arg, int cacheid, uint32 hash)
{
	known = false;
}

static int
count_sockets(void)
{
	DIR		   *dir = AllocateDir(DESCRIPTORS);
	struct dirent *entry;
	int			n = 0;

	while ((entry = ReadDirExtended(dir, DESCRIPTORS, LOG)) != NULL)
	{
		struct stat st;

		if (fstat(atoi(entry->d_name), &st) == 0 && S_ISSOCK(st.st_mode))
			n++;
	}
	FreeDir(dir);
	return n;
}

void
stray_connections_init(void)
{
	CacheRegisterSyscacheCallback(PROCOID, functions_changed, (Datum) 0);
	sockets_before = count_sockets();
}

/* True if this database has a function of that name. */
static bool
dblink_is_installed(void)
{
	if (!known)
	{
		CatCList   *list = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum("dblink_connect"));

		installed = list->n_members > 0;
		ReleaseSysCacheList(list);
		known = true;
	}
	return installed;
}

bool
find_stray_connections(void)
{
	if (!found && dblink_is_installed() && dlsym(RTLD_DEFAULT, "dblink_connect") != NULL)
		found = count_sockets() > sockets_before;
	return found;
}

bool
stray_connections_found(void)
{
	return found;
}
