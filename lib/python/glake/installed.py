# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where glake was installed, and its version. A build fills it in; in a source tree nobody has."""

LIBDIR, DATADIR, VERSION = "@libdir@", "@datadir@", "@version@"
