/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Texts of a page: nothing in a name is more than a text, and none of it breaks the page. */
#include "tool/report.h"

#include "t/tap.h"

#define GONE "\xef\xbf\xbd"

static const struct {
	const char *text, *shown, *what;
} texts[] = {
	{"opt13_N", "opt13_N", "a name"},
	{"", "", "none"},
	{"<b a=\"c\" d='e'>&amp;", "&#60;b a=&#34;c&#34; d=&#39;e&#39;&#62;&#38;amp;",
		"what has a meaning in a page"},
	{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
		"two, three and four bytes"},
	{"a\x01\n\t\x7f", "a" GONE GONE GONE GONE, "controls"},
	{"\xc2\x80\xc2\x9f\xc2\xa0", GONE GONE "\xc2\xa0", "the other controls"},
	{"\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8\xe2\x80\xa6",
		GONE GONE GONE "\xe2\x80\xa6", "what turns a text around"},
	{"\xff\xc3", GONE GONE, "no UTF-8, and half of a character"},
	{"\xc0\xbc\xed\xa0\x80", GONE GONE GONE GONE GONE,
		"a '<' of two bytes, a surrogate"},
};

static void check(size_t i)
{
	char *shown = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&shown, &size);

	report_put_text(file, texts[i].text);
	fclose(file);
	is_str(shown, texts[i].shown, texts[i].what);
	free(shown);
}

int main(void)
{
	tap_plan(sizeof(texts) / sizeof(texts[0]));
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		check(i);
	return tap_done();
}
