/*
 * config.c
 *	  Settings: the file, then JOBQ_WEB_*, then flags.
 *
 * One table of keys serves all three, the help and the checks.  A file has
 * lines "key = value" and comments that begin with "#".  Every value is checked
 * here, so that --check finds what a start would refuse.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "net.h"

#define DEFAULT_FILE	"/etc/jobq/web.conf"
#define DEFAULT_LISTEN	"127.0.0.1:7432"
#define MAX_FILE		65536

typedef struct Key
{
	const char *name;
	size_t		place;
	const char *help;
} Key;

#define PLACE(field) offsetof(Config, field)

static const Key keys[] = {
	{"dsn", PLACE(dsn), "connection string of libpq; @FILE reads it from a file"},
	{"databases", PLACE(databases_text), "databases to sign in to; the first is the default (that of dsn)"},
	{"listen", PLACE(listen_text), "addresses: host:port, unix:/path, systemd (" DEFAULT_LISTEN ")"},
	{"origin", PLACE(origin), "scheme, host and port as browsers see them (from listen)"},
	{"base_path", PLACE(base_path), "path prefix, as /queue (none)"},
	{"tls_cert", PLACE(tls_cert), "file with the certificate and its chain"},
	{"tls_key", PLACE(tls_key), "file with the private key"},
	{"metrics_listen", PLACE(metrics_listen_text), "addresses of loopback for /metrics, /health and /livez without sign-in"},
	{"trusted_proxy", PLACE(trusted_proxy), "addresses or networks whose X-Forwarded-For counts; unix"},
	{"proxy_user_header", PLACE(proxy_user_header), "header in which such a proxy names the user"},
	{"roles", PLACE(roles_text), "user=role of such users, *=role for all others; passwords from the passfile"},
	{"redact", PLACE(redact_text), "names of JSON keys whose values are hidden in what readers see"},
	{"log", PLACE(log), "errors (default) or requests"},
};

#define NKEYS ((int) (sizeof(keys) / sizeof(keys[0])))

static char **
place_of(Config *config, const Key *key)
{
	return (char **) ((char *) config + key->place);
}

/* Finds a key; "-" and "_" are the same, so are letters of both cases if asked. */
static const Key *
key_named(const char *name, size_t len, bool upper)
{
	int			k;
	size_t		i;

	for (k = 0; k < NKEYS; k++)
	{
		const char *key = keys[k].name;

		for (i = 0; i < len && key[i]; i++)
		{
			char		c = name[i] == '-' ? '_' : name[i];

			if (upper && c >= 'A' && c <= 'Z')
				c = (char) (c - 'A' + 'a');
			if (c != key[i])
				break;
		}
		if (i == len && key[i] == '\0')
			return &keys[k];
	}
	return NULL;
}

static void
set_value(Config *config, const Key *key, const char *value, size_t len)
{
	char	  **place = place_of(config, key);

	free(*place);
	*place = mem_copy(value, len);
}

char *
config_file(const char *path)
{
	FILE	   *file = fopen(path, "re");
	char	   *text;
	size_t		n;

	if (!file)
	{
		log_line("could not open \"%s\": %s", path, strerror(errno));
		return NULL;
	}
	text = mem_zero(MAX_FILE + 1);
	n = fread(text, 1, MAX_FILE, file);
	fclose(file);
	if (n == MAX_FILE || memchr(text, '\0', n))
	{
		log_line("\"%s\" is too large or has a zero byte", path);
		free(text);
		return NULL;
	}
	return text;
}

static char *
trim(char *s)
{
	size_t		len;

	s += strspn(s, " \t");
	len = strlen(s);
	while (len > 0 && strchr(" \t\r", s[len - 1]))
		s[--len] = '\0';
	return s;
}

static bool
read_line(Config *config, const char *path, int number, char *line)
{
	char	   *equals;
	const Key  *key;

	line = trim(line);
	if (*line == '\0' || *line == '#')
		return true;
	equals = strchr(line, '=');
	if (equals)
	{
		*equals = '\0';
		line = trim(line);
		key = key_named(line, strlen(line), false);
		if (key)
		{
			equals = trim(equals + 1);
			set_value(config, key, equals, strlen(equals));
			return true;
		}
	}
	log_line("%s, line %d: \"%s\" is not a setting", path, number, line);
	return false;
}

static bool
read_settings(Config *config, const char *path)
{
	char	   *text = config_file(path);
	char	   *line = text;
	int			number = 0;
	bool		good = text != NULL;

	while (good && line)
	{
		char	   *end = strchr(line, '\n');

		if (end)
			*end++ = '\0';
		good = read_line(config, path, ++number, line);
		line = end;
	}
	free(text);
	return good;
}

static bool
read_environment(Config *config)
{
	extern char **environ;
	char	  **e;

	for (e = environ; *e; e++)
	{
		const char *name = *e + strlen("JOBQ_WEB_");
		const char *equals = strchr(*e, '=');
		const Key  *key;

		if (strncmp(*e, "JOBQ_WEB_", strlen("JOBQ_WEB_")) != 0 || !equals || equals < name)
			continue;
		if (strncmp(name, "CONFIG=", 7) == 0)
			continue;
		key = key_named(name, (size_t) (equals - name), true);
		if (!key)
		{
			log_line("JOBQ_WEB_%.*s is not a setting", (int) (equals - name), name);
			return false;
		}
		set_value(config, key, equals + 1, strlen(equals + 1));
	}
	return true;
}

static bool
read_flag(Config *config, const char *flag)
{
	const char *equals = strchr(flag, '=');
	const Key  *key = NULL;

	if (strncmp(flag, "--", 2) == 0 && equals)
		key = key_named(flag + 2, (size_t) (equals - flag) - 2, false);
	if (strcmp(flag, "--check") == 0)
		config->check = true;
	else if (strcmp(flag, "--version") == 0 || strcmp(flag, "--help") == 0)
		config->what = flag;
	else if (key)
		set_value(config, key, equals + 1, strlen(equals + 1));
	else if (strncmp(flag, "--config=", 9) != 0)
	{
		log_line("\"%s\" is not an option; see jobq-web --help", flag);
		return false;
	}
	return true;
}

/* Splits a list in place of a copy; false: it is too long, or an element is empty. */
static bool
split_list(List *list, const char *key, const char *text, bool pairs)
{
	char	   *copy = mem_text(text);
	char	   *s = copy;

	while (s)
	{
		char	   *comma = strchr(s, ',');
		char	   *equals;

		if (comma)
			*comma++ = '\0';
		s = trim(s);
		equals = pairs ? strchr(s, '=') : NULL;
		if (equals)
			*equals++ = '\0';
		if (*s == '\0' || list->count == MAX_LIST || (pairs && (!equals || *trim(equals) == '\0')))
		{
			log_line("%s: \"%s\" is not a list of %s", key, text, pairs ? "name=value" : "names, 32 at most");
			list->count = 0;
			free(copy);
			return false;
		}
		list->items[list->count++] = (ListItem) {trim(s), equals ? trim(equals) : NULL};
		s = comma;
	}
	return true;
}

static bool
wrong(const char *key, const char *value, const char *why)
{
	log_line("%s: \"%s\" %s", key, value, why);
	return false;
}

/* Reads a connection string from the file that "@FILE" names. */
static bool
read_dsn(Config *config)
{
	char	   *text;

	if (!config->dsn)
		return true;
	if (config->dsn[0] == '@')
	{
		text = config_file(config->dsn + 1);
		if (!text)
			return false;
		text[strcspn(text, "\n")] = '\0';
		free(config->dsn);
		config->dsn = mem_text(trim(text));
		free(text);
	}
	return true;
}

/* Checks origin, or makes it from the first address. */
static bool
check_origin(Config *config)
{
	const char *host;
	Buf			made = {0};

	if (!config->origin)
	{
		const char *first = config->listen.items[0].name;

		if (!strchr(first, ':') || strncmp(first, "unix:", 5) == 0)
			return wrong("listen", first, "needs the setting origin, too");
		buf_printf(&made, "%s://%s", config->tls ? "https" : "http", first);
		config->origin = made.data;
		return true;
	}
	host = strncmp(config->origin, "https://", 8) == 0 ? config->origin + 8 :
		strncmp(config->origin, "http://", 7) == 0 ? config->origin + 7 : "";
	if (*host == '\0' || strpbrk(host, "/ ,?#@"))
		return wrong("origin", config->origin, "is not scheme://host[:port]");
	return true;
}

static bool
check_paths(Config *config)
{
	const char *base = config->base_path ? config->base_path : "";

	if (*base && (*base != '/' || base[strlen(base) - 1] == '/' || strpbrk(base, "?#% ") || strstr(base, "//")))
		return wrong("base_path", base, "is not a path as /queue");
	if (!config->tls_cert != !config->tls_key)
		return wrong("tls_cert", config->tls_cert ? config->tls_cert : "", "and tls_key must be given together");
	config->tls = config->tls_cert != NULL;
	if (config->log && strcmp(config->log, "errors") != 0 && strcmp(config->log, "requests") != 0)
		return wrong("log", config->log, "is neither errors nor requests");
	config->log_requests = config->log && strcmp(config->log, "requests") == 0;
	return true;
}

static bool
check_proxy(Config *config)
{
	if (config->trusted_proxy && !networks_parse(config->trusted_proxy, &config->trusted))
		return wrong("trusted_proxy", config->trusted_proxy, "is not a list of addresses");
	if (config->proxy_user_header && (config->trusted.count == 0 || config->roles.count == 0))
		return wrong("proxy_user_header", config->proxy_user_header, "needs trusted_proxy and roles");
	if (config->roles.count > 0 && !config->proxy_user_header)
		return wrong("roles", config->roles_text, "needs proxy_user_header");
	return true;
}

/* Refuses passwords in clear over a network: that needs TLS, or a proxy that has it. */
static bool
check_listeners(const Config *config)
{
	int			i;

	for (i = 0; i < config->listen.count; i++)
	{
		const char *name = config->listen.items[i].name;

		if (!net_is_address(name))
			return wrong("listen", name, "is not host:port, unix:/path or systemd");
		if (!net_is_local(name) && !config->tls && config->trusted.count == 0)
			return wrong("listen", name, "is not on loopback: give tls_cert and tls_key, or trusted_proxy");
	}
	for (i = 0; i < config->metrics_listen.count; i++)
	{
		const char *name = config->metrics_listen.items[i].name;

		if (!net_is_address(name) || strcmp(name, "systemd") == 0 || !net_is_local(name))
			return wrong("metrics_listen", name, "is not an address on loopback");
	}
	return true;
}

static bool
check_all(Config *config)
{
	const struct
	{
		List	   *list;
		const char *key;
		const char *text;
		bool		pairs;
	}			lists[] = {
		{&config->listen, "listen", config->listen_text ? config->listen_text : DEFAULT_LISTEN, false},
		{&config->metrics_listen, "metrics_listen", config->metrics_listen_text, false},
		{&config->databases, "databases", config->databases_text, false},
		{&config->roles, "roles", config->roles_text, true},
		{&config->redact, "redact", config->redact_text, false},
	};
	size_t		i;

	for (i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
	{
		if (lists[i].text && !split_list(lists[i].list, lists[i].key, lists[i].text, lists[i].pairs))
			return false;
	}
	if (!read_dsn(config) || !check_paths(config) || !check_origin(config) || !check_proxy(config))
		return false;
	return check_listeners(config);
}

bool
config_read(Config *config, int argc, char **argv)
{
	const char *path = getenv("JOBQ_WEB_CONFIG");
	int			i;

	for (i = 1; i < argc; i++)
	{
		if (strncmp(argv[i], "--config=", 9) == 0)
			path = argv[i] + 9;
	}
	if (path)
	{
		if (!read_settings(config, path))
			return false;
	}
	else
	{
		FILE	   *file = fopen(DEFAULT_FILE, "re");

		if (file)
			fclose(file);
		if (file && !read_settings(config, DEFAULT_FILE))
			return false;
	}
	if (!read_environment(config))
		return false;
	for (i = 1; i < argc; i++)
	{
		if (!read_flag(config, argv[i]))
			return false;
	}
	return config->what || check_all(config);
}

void
config_help(void)
{
	int			i;

	puts("jobq-web serves jobq's HTTP API.\n\nUsage: jobq-web [--config=FILE] [--check] [--KEY=VALUE...]\n\n"
		 "Settings, in " DEFAULT_FILE " as key = value, in the environment as JOBQ_WEB_KEY,\n"
		 "or as flags, the last one counts:");
	for (i = 0; i < NKEYS; i++)
		printf("  %-18s %s\n", keys[i].name, keys[i].help);
}

const char *
config_database(const Config *config, const char *name)
{
	int			i;

	for (i = 0; i < config->databases.count; i++)
	{
		if (!name || strcmp(config->databases.items[i].name, name) == 0)
			return config->databases.items[i].name;
	}
	return NULL;
}

const char *
config_role_of(const Config *config, const char *user)
{
	const char *other = NULL;
	int			i;

	for (i = 0; i < config->roles.count; i++)
	{
		if (strcmp(config->roles.items[i].name, user) == 0)
			return config->roles.items[i].value;
		if (strcmp(config->roles.items[i].name, "*") == 0)
			other = config->roles.items[i].value;
	}
	return other;
}

bool
config_is_proxy_role(const Config *config, const char *role)
{
	int			i;

	for (i = 0; i < config->roles.count; i++)
	{
		if (strcmp(config->roles.items[i].value, role) == 0)
			return true;
	}
	return false;
}
