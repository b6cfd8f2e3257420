/*
 * release.c
 *	  Compares the version of the extension in this database with the library's: see release.h.
 *
 * The version is read again when relations.c has forgotten the tables;
 * ddl_hook.c sees to that after ALTER EXTENSION.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "base/relations.h"
#include "lifecycle/release.h"

PG_FUNCTION_INFO_V1(jobq_compact);
PG_FUNCTION_INFO_V1(jobq_library_version);
PG_FUNCTION_INFO_V1(jobq_outside_extension);

#define VERSION_SIZE	64

static char installed[VERSION_SIZE] = "";
static uint64 read_at = 0;		/* relations_generation() */

/* Reads pg_extension.extversion; '': the extension is not there. */
static void
read_version(char *version)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	version[0] = '\0';
	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("jobq"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		value = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		strlcpy(version, TextDatumGetCString(value), VERSION_SIZE);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

static const char *
installed_version(void)
{
	uint64		generation;

	/* an invalidation of either counts from now on */
	if (!OidIsValid(jobq_relid("queue")) || !OidIsValid(jobq_relid("job_types")))
	{
		read_at = 0;
		return "";
	}
	generation = relations_generation();
	if (read_at != generation)
	{
		read_version(installed);
		read_at = generation;
	}
	return installed;
}

/* True also of a database without the extension. */
static bool
is_ours(const char *version)
{
	return version[0] == '\0' || strcmp(version, JOBQ_VERSION) == 0;
}

/*
 * True if the installed version is later than the library's; false also when
 * it is no version.
 */
static bool
is_later(const char *version)
{
	int			theirs[3] = {0};
	int			ours[3] = {0};

	if (sscanf(version, "%d.%d.%d", &theirs[0], &theirs[1], &theirs[2]) < 2)
		return false;
	(void) sscanf(JOBQ_VERSION, "%d.%d.%d", &ours[0], &ours[1], &ours[2]);
	for (int i = 0; i < 3; i++)
	{
		if (theirs[i] != ours[i])
			return theirs[i] > ours[i];
	}
	return false;
}

static const char *
remedy(const char *version)
{
	return is_later(version) ? "Install that version's library and restart the server." :
		"Run ALTER EXTENSION jobq UPDATE.";
}

const char *
release_trouble(void)
{
	const char *version = installed_version();

	if (is_ours(version) || creating_extension)
		return NULL;
	return psprintf("the library is jobq %s, the extension in this database is version %s. %s",
					JOBQ_VERSION, version, remedy(version));
}

void
release_require(void)
{
	static uint64 found_at = 0; /* relations_generation() that it was found to do at */
	const char *version;

	if (creating_extension || found_at == relations_generation())
		return;
	version = installed_version();
	if (is_ours(version))
	{
		found_at = read_at;
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the library is jobq %s, the extension in this database is version %s", JOBQ_VERSION, version),
			 errhint("%s", remedy(version))));
}

void
release_require_of_worker(void)
{
	StartTransactionCommand();
	release_require();
	CommitTransactionCommand();
}

/* jobq.compact() of 0.1.0: CREATE FUNCTION in its script looks for the symbol. */
Datum
jobq_compact(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("jobq.compact() does not exist any more"),
			 errhint("ALTER EXTENSION jobq UPDATE. VACUUM removes dead rows.")));
	PG_RETURN_NULL();
}

/* ---------- for the scripts of ALTER EXTENSION jobq UPDATE (src/sql/upgrade) ---------- */

/*
 * jobq_internal._library_version(): of the library that this process has
 * loaded
 */
Datum
jobq_library_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(JOBQ_VERSION));
}

/*
 * jobq_internal._outside_extension(statement), STRICT.  Runs a statement as if
 * no extension script ran.  A GRANT in a script becomes an initial privilege
 * of the extension, which pg_dump does not carry; grants to users' roles are
 * no part of the extension.  Rights are the caller's.
 */
Datum
jobq_outside_extension(PG_FUNCTION_ARGS)
{
	char	   *statement = text_to_cstring(PG_GETARG_TEXT_PP(0));
	bool		in_script = creating_extension;

	SPI_connect();
	PG_TRY();
	{
		creating_extension = false;
		SPI_execute(statement, false, 0);
	}
	PG_FINALLY();
	{
		creating_extension = in_script;
	}
	PG_END_TRY();
	SPI_finish();
	PG_RETURN_VOID();
}
