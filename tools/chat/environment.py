# SPDX-License-Identifier: MIT OR Apache-2.0
"""The jinja2 environment of chat templates, set up as transformers' utils/chat_template_utils.py does."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.utils
from jinja2.sandbox import ImmutableSandboxedEnvironment

# What strftime_now shows in all goldens.
NOW = datetime.datetime(2026, 11, 30, 12, 0, 0)


class Generation(jinja2.ext.Extension):
    """{% generation %} prints its body; transformers also notes where it stands."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(lineno)

    @jinja2.pass_eval_context
    def _print(self, context, caller):
        return caller()


class Dict:
    """The global dict: callable, with fromkeys, and nothing else."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)

    def __repr__(self):
        return "<class 'dict'>"


class Namespace(jinja2.utils.Namespace):
    """A namespace that refuses names with an underscore in front."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(
                f"Chat templates cannot store underscore-prefixed attributes on a namespace, but got {name!r}. "
                "Please rename the attribute."
            )


Namespace.__module__ = "jinja2.utils"  # for messages


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    env.globals["dict"] = Dict()
    env.globals["namespace"] = Namespace
    return env


def render(env, compiled, source, variables):
    """Gives (text, None) or (None, error). The message is kept only where it is jinja2's or the template's own: those of
    Python change between its versions. compiled caches templates."""
    try:
        if source not in compiled:
            compiled[source] = env.from_string(source)
        return compiled[source].render(**variables), None
    except RecursionError:
        return None, "RecursionError"
    except jinja2.exceptions.TemplateError as e:
        return None, f"{type(e).__name__}: {e}"
    except Exception as e:
        return None, type(e).__name__
