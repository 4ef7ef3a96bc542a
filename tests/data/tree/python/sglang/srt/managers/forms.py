"""Every way in which a code base puts a line together."""

import logging
import warnings

logger = logging.getLogger(__name__)
CONSTANT = "a constant text"
FORMAT = "constant format with %d slots"


def rank0_log(text):
    logger.info(text)


class Forms:
    def plain(self):
        logger.info("plain words only here")

    def f_string(self, count):
        logger.info(f"f-string with {count} items and {self.ratio:.3f} of it")

    def debug_form(self, count):
        logger.info(f"debug form {count=} then {self.ratio=:.2f}")

    def braces(self, name):
        logger.info(f"braces {{kept}} around {name!r}")

    def percent(self, count):
        logger.warning("percent with %d of %s at %.1f%%", count, self.name, self.share)

    def percent_operator(self, count):
        logger.warning("operator form %s and %05d" % (self.name, count))

    def format_method(self, count):
        logger.info("format method {} and {name} at {:.2f}".format(count, self.share, name=self.name))

    def concatenation(self, count):
        logger.info("joined by plus " + str(count) + " then " + self.name + " the end")

    def neighbours(self):
        logger.info("neighbouring " "literals " f"with {self.name} " 'of both quotes')

    def conditional(self):
        logger.info(f"conditional {'first' if self.flag else 'second'} branch of {self.name}")

    def variable(self):
        text = f"built before {self.name}"
        logger.info(text)

    def grown(self):
        text = "grown in steps:"
        for item in self.items:
            text += f" [{item}]"
        if self.flag:
            text += " flag set"
        elif self.name:
            text += f" named {self.name}"
        logger.error(text)

    def replaced(self):
        if self.flag:
            text = f"replaced text one {self.name}"
        else:
            text = "replaced text two"
        raise ValueError(text)

    def listed(self):
        parts = []
        parts.append(f"listed first={self.first}")
        parts += [f"listed second={self.second}"]
        logger.info("; ".join(parts))

    def several_lines(self):
        raise RuntimeError(
            f"several lines begin with {self.name}\n"
            "second physical line stands alone\n"
            f"third holds {self.count} values\n"
        )

    def asserted(self):
        assert self.count > 0, f"asserted that {self.count=} is positive"

    def printed(self):
        print("printed with", self.count, "parts")

    def warned(self):
        warnings.warn(f"warned about {self.name} once")

    def helper(self):
        rank0_log(f"helper prints {self.name} on one rank")

    def module_constant(self):
        logger.info(FORMAT, self.count)

    def escapes(self):
        logger.info("escapes \"quoted\" and tab\there for {}".format(self.name))

    def rule(self):
        logger.info("=" * 30 + f" ruled {self.name}")

    def returned(self):
        return f"returned text of {self.name} for others"

    def twin_one(self):
        logger.info("twin message printed from two places")

    def twin_two(self):
        logger.info("twin message printed from two places")
