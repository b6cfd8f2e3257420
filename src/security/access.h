/*
 * access.h
 *	  The grants in jobq.access, and the checks against them.
 *
 * A role is free, or held to its grants (those made to it and to the roles
 * whose rights it has).  Free are superusers, roles that have the rights of
 * the owner of jobq's tables, and roles that jobq.grant_access has never
 * named. The latter got EXECUTE by hand, with GRANT, which counts for every
 * tenant and type.
 *
 * jobq.grant_access marks a role by USAGE on the domain jobq.access_kind.  The
 * mark is in the catalog, so that it follows a role that is renamed, survives
 * dump and restore, and never adds rights when rows of jobq.access are lost.
 */
#ifndef JOBQ_ACCESS_H
#define JOBQ_ACCESS_H

#include "registry/job_types.h"

typedef enum Access
{
	ACCESS_ENQUEUE,
	ACCESS_WORK,
	ACCESS_READ,				/* ACCESS_ADMIN has it too */
	ACCESS_ADMIN
} Access;
#define ACCESS_COUNT (ACCESS_ADMIN + 1)

/*
 * True if the role is free.  All of these read jobq.access once, and again
 * when a grant or a membership has changed.
 */
extern bool access_is_free(Oid role);

/*
 * True if the role has the access.  tenant NULL: to jobs without one.  type
 * NULL: to every type.
 */
extern bool access_may(Oid role, Access access, text *tenant, const char *type);
/* ... of every tenant. */
extern bool access_may_everywhere(Oid role, Access access, const char *type);
/*
 * Calls add(), unless it is NULL, with each tenant of the role's grants of
 * that access; "" stands for jobs without one.  Returns their number.
 */
extern int	access_tenants(Oid role, Access access, const char *type, void (*add) (void *arg, const char *tenant), void *arg);
/* ... of the tenant, by a grant that names the type. */
extern bool access_names_type(Oid role, Access access, text *tenant, const char *type);
/* ... of some type of that tenant. */
extern bool access_may_some_type(Oid role, Access access, text *tenant);
/* ... of the type, for some tenant; by_name: by a grant that names the type. */
extern bool access_may_some_tenant(Oid role, Access access, const char *type, bool by_name);
/* ... of some tenant and type. */
extern bool access_may_some(Oid role, Access access);

/* ... and may know that there is such a type. */
extern bool access_knows_type(Oid role, const char *type);

/*
 * Returns what a row stores of the role that enqueued it, "oid:name"; NULL of
 * a role that is free, which sees all rows.  The oid follows a rename.  The
 * name serves restored dumps: jobq.adopt() writes the oids anew, 0 where no
 * role has the name.
 */
extern const char *access_enqueuer(Oid role);

/*
 * True if a row's enqueued_by means the role of `self`, which
 * access_enqueuer() has returned.
 */
extern bool access_is_enqueuer(const char *self, const text *enqueued_by);

/* grant_checks.c: checks of calls.  42501 when the caller lacks the access. */
/*
 * True if the role may read jobs of that tenant and type, or has enqueued this
 * one and still has some access to the type.
 */
extern bool access_sees(Oid role, text *tenant, const char *type, text *enqueued_by);
/* True if the role may enqueue a job of the type for the tenant. */
extern bool access_may_enqueue(Oid role, JobType *type, text *tenant);
extern void access_check_enqueue(JobType *type, text *tenant);
/* True if the role may enqueue jobs of the type for some tenant. */
extern bool access_may_enqueue_some(Oid role, JobType *type);

/*
 * Checks the call of a function behind the gate (owner_call.c), by its name
 * and first argument.
 */
extern void access_check_call(Oid caller, const char *function, const NullableDatum *args);
/* Checks the call of a function for free roles only. */
extern void access_need_free(const char *function);

/*
 * Returns a counter that rises with each change of grants, roles or
 * memberships.
 */
extern uint64 access_generation(void);

/*
 * tenant_check.c: true if the check of jobq.set_tenant_check admits the role
 * to the tenant.  Runs it as that role.
 */
extern bool tenant_check_admits(Oid role, text *tenant);

/*
 * While it is set the check admits no role: a tick is judged by grants, and
 * its process runs no code of users.
 */
extern bool tenant_check_ignored;

/* The checked columns of jobq.access, jobq.tenant_check: see table_shape.h. */
extern const struct Shape access_shape;
extern const struct Shape tenant_check_shape;

#endif
