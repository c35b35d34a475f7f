/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Says that the program runs with more rights than its user, which a test cannot have. */
#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

__attribute__((visibility("default"))) unsigned long getauxval(unsigned long type);

/* All else is as the kernel says. */
unsigned long getauxval(unsigned long type)
{
	int file = open("/proc/self/auxv", O_RDONLY | O_CLOEXEC);
	unsigned long pair[2] = {1, 0}, value = 0;

	if (type == AT_SECURE)
		value = 1;
	while (file >= 0 && type != AT_SECURE && pair[0] &&
		read(file, pair, sizeof(pair)) == sizeof(pair))
		value = pair[0] == type ? pair[1] : value;
	if (file >= 0)
		close(file);
	return value;
}
