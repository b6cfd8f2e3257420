/*
 * config.h
 *	  Settings: the file, then JOBQ_WEB_*, then flags; a later one replaces
 *	  an earlier one.
 */
#ifndef JOBQ_WEB_CONFIG_H
#define JOBQ_WEB_CONFIG_H

#include <stdbool.h>

#include "address.h"

#define MAX_LIST 32

/* A comma-separated list; elements of the form name=value have both. */
typedef struct ListItem
{
	char	   *name;
	char	   *value;			/* NULL: none */
} ListItem;

typedef struct List
{
	ListItem	items[MAX_LIST];
	int			count;
} List;

typedef struct Config
{
	/* as given; NULL: not given */
	char	   *dsn;
	char	   *databases_text;
	char	   *listen_text;
	char	   *origin;
	char	   *base_path;
	char	   *tls_cert;
	char	   *tls_key;
	char	   *metrics_listen_text;
	char	   *trusted_proxy;
	char	   *proxy_user_header;
	char	   *roles_text;
	char	   *redact_text;
	char	   *log;

	/* parsed */
	List		databases;
	List		listen;
	List		metrics_listen;
	List		roles;			/* user of the proxy = role; "*": every other
								 * one */
	List		redact;
	Networks	trusted;
	bool		log_requests;
	bool		tls;

	bool		check;			/* --check: only read the settings */
	const char *what;			/* --version, --help */
} Config;

/*
 * Reads all settings; false: the log says what is wrong.  A value "@FILE" of
 * dsn is read from that file.
 */
extern bool config_read(Config *config, int argc, char **argv);
/* Returns the contents of a small file; NULL: the log says why there are none. */
extern char *config_file(const char *path);
extern void config_help(void);

/* The database that a client may name; NULL: it may not. */
extern const char *config_database(const Config *config, const char *name);
/* The role of a user that the proxy names; NULL: none. */
extern const char *config_role_of(const Config *config, const char *user);
/* True if only the proxy may use the role. */
extern bool config_is_proxy_role(const Config *config, const char *role);

#endif
