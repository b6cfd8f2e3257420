# The files of jobq-web.  WEB_SHARED are files of jobq-helper that it uses, too.
WEB_SRCS = $(addprefix src/web/,main.c loop.c buf.c secret.c config.c net.c address.c guard.c query.c json.c conn.c \
	http.c gzip.c problem.c person.c link.c pool.c notify.c throttle.c session.c call.c router.c routes.c arguments.c identify.c \
	statement.c handle.c sign_in.c overview.c frame.c feed.c stream.c claim.c bulk.c seeds.c plain.c openapi.c schema.c \
	answers.c assets.c)
WEB_SHARED = src/helper/json.c src/helper/utf8.c
# The files of the page.
WEB_PAGE = $(patsubst src/web/page/%,%,$(wildcard $(addprefix src/web/page/,*.html *.css *.js *.svg vendor/*.js vendor/*.css)))
