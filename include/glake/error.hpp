/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_ERROR_HPP
#define GLAKE_ERROR_HPP

/* Errors of glake in C++: what functions throw, and the record for those that do not. */
#include <glake/error.h>

#include <exception>
#include <new>

namespace glk
{

/* The record of the last call of this thread that failed. Never throws. */
inline struct glake_error last_error() noexcept
{
	struct glake_error record = {};

	record.sz = sizeof(record);
	glake_last_error(&record);
	return record;
}

/* A call that failed. Copying one never throws. */
class error : public std::exception
{
      public:
	/* Of the last call of this thread that failed; it returned `err`. */
	explicit error(int err) noexcept : record_(last_error()), err_(err)
	{
	}

	/* The sentence; for one that there is no record of, the name of its class. */
	const char *what() const noexcept override
	{
		return record_.text[0] ? record_.text : class_name();
	}
	/* A negative errno value. */
	int code() const noexcept
	{
		return err_;
	}
	int error_class() const noexcept
	{
		return record_.error_class;
	}
	const char *class_name() const noexcept
	{
		return glake_error_class_name(record_.error_class);
	}
	/* The CUresult or errno of the call below, and that call; 0 and "" if none. */
	int native() const noexcept
	{
		return record_.native;
	}
	const char *call() const noexcept
	{
		return record_.call;
	}
	const struct glake_error &record() const noexcept
	{
		return record_;
	}

      private:
	struct glake_error record_;
	int err_;
};

/* The same for what has to be a std::bad_alloc: memory resources. */
class bad_alloc : public std::bad_alloc
{
      public:
	explicit bad_alloc(const error &why) noexcept : why_(why)
	{
	}
	const char *what() const noexcept override
	{
		return why_.what();
	}
	const error &why() const noexcept
	{
		return why_;
	}

      private:
	error why_;
};

/* Passes on what a function for C returned; throws the error if it is one. */
inline int check(int result)
{
	if (result < 0)
		throw error(result);
	return result;
}

} /* namespace glk */

#endif
