/*
 * assets.c
 *	  Serves the page.
 *
 * The page is the same for everyone and knows nothing: it signs in, and all
 * that it shows comes from the API.  Browsers keep its files, and ask each time
 * whether they are still the same; index.html, which names them, is not kept.
 *
 * Links in the page are relative, so that any prefix of a proxy works.
 * index.html is also served one directory below, at /admin/jobs: the links of
 * that copy begin with "../".
 */
#include "assets.h"

#include <string.h>

#include "gzip.h"
#include "problem.h"

#define INDEX	"index.html"
#define LINK	"=\"assets/"

static const char page_policy[] =
"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

static const Asset *
asset_named(const char *name)
{
	const Asset *asset;

	for (asset = assets; asset->name; asset++)
	{
		if (strcmp(asset->name, name) == 0)
			return asset;
	}
	return NULL;
}

/* Adds index.html with links for a path that many directories below the page's own. */
static void
add_index(Buf *out, const Asset *index, int depth)
{
	const char *rest = (const char *) index->plain;
	const char *end = rest + index->plain_len;
	const char *link;

	while ((link = memmem(rest, (size_t) (end - rest), LINK, strlen(LINK))))
	{
		int			i;

		link += strcspn(link, "\"") + 1;
		buf_add(out, rest, (size_t) (link - rest));
		for (i = 0; i < depth; i++)
			buf_text(out, "../");
		rest = link;
	}
	buf_add(out, rest, (size_t) (end - rest));
}

/* How many directories the path is below the page's own. */
static int
depth_of(const Call *call)
{
	const char *c;
	int			slashes = 0;

	for (c = call->route->path; *c; c++)
		slashes += *c == '/';
	return slashes - 1;
}

void
page_get(Call *call)
{
	Reply	   *reply = &call->request->reply;
	const Asset *index = asset_named(INDEX);

	reply->policy = page_policy;
	add_index(&reply->body, index, depth_of(call));
	call_reply(call, 200, index->type);
}

void
asset_get(Call *call)
{
	Request    *request = call->request;
	Reply	   *reply = &request->reply;
	const char *directory = call->route->path + strlen("/assets/");
	Buf			name = {0};
	const Asset *asset;

	buf_printf(&name, "%.*s%s", (int) strcspn(directory, "{"), directory, call->in_path[0]);
	asset = asset_named(name.data);
	buf_free(&name);
	if (!asset)
	{
		problem_reply(request, 404, "there is no such path");
		return;
	}
	reply->policy = page_policy;
	reply->kept = true;
	reply_header(request, "ETag", asset->tag);
	reply_header(request, "Vary", "Accept-Encoding");
	if (header_lists(request->facts.if_none_match, asset->tag))
	{
		call_reply(call, 304, asset->type);
		return;
	}
	if (gzip_is_taken(request))
	{
		reply_header(request, "Content-Encoding", "gzip");
		buf_add(&reply->body, asset->packed, asset->packed_len);
	}
	else
		buf_add(&reply->body, asset->plain, asset->plain_len);
	call_reply(call, 200, asset->type);
}

bool
wants_page(const Call *call)
{
	return call->route->page && !call->request->conn->metrics && header_lists(call->request->facts.accept, "text/html");
}
