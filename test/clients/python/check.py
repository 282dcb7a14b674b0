#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks a running server what programs ask it through OpenAI's own Python client.

    check.py http://127.0.0.1:8888/v1

Any small instruct model will do: no check judges what it says, only that the same question has the same answer however it is
asked: streamed or not, through the synchronous or the asynchronous client, alone or beside others. One line per check; the
exit status is 1 if any failed.
"""

import asyncio
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import openai

STORY = "Write a long story about a river that wanted to see the sea."
OPENING = "Once upon a time a river"
TOPICS = ["a mountain", "the moon", "a blue train", "bread", "two cats", "rain", "an old clock", "salt"]
TOKENS = 24
CHECKS: list[tuple[str, Callable]] = []


class Failed(Exception):
    pass


def check(name: str):
    """Registers a function of a Server, plain or async."""

    def register(run):
        CHECKS.append((name, run))
        return run

    return register


def equal(what: str, got: Any, want: Any) -> None:
    if got != want:
        raise Failed(f"{what}: got {got!r}, want {want!r}")


def holds(condition: Any, what: str) -> None:
    if not condition:
        raise Failed(what)


class Server:
    """The same server through both clients."""

    def __init__(self, url: str):
        options = {"base_url": url, "api_key": "none", "max_retries": 0, "timeout": 120}
        self.sync = openai.OpenAI(**options)
        self.options = options
        self.model = ""
        self.context = 0

    def asking(self, text: str = STORY, **change) -> dict:
        """A greedy chat request of a few tokens."""
        messages = [{"role": "user", "content": text}]
        return {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": TOKENS} | change

    def completing(self, **change) -> dict:
        """The same for a completion."""
        return {"model": self.model, "prompt": OPENING, "temperature": 0, "max_tokens": TOKENS} | change

    def chat(self, **change):
        return self.sync.chat.completions.create(**self.asking(**change))

    def say(self, **change) -> str:
        return self.chat(**change).choices[0].message.content

    def streamed(self, **change) -> list:
        return list(self.chat(stream=True, **change))

    def complete(self, **change):
        return self.sync.completions.create(**self.completing(**change))


def joined(chunks: list, index: int = 0) -> tuple[str, str | None]:
    """The text of one choice of a stream and why it ended."""
    text, reason = "", None
    for choice in (c for chunk in chunks for c in chunk.choices if c.index == index):
        text += (choice.delta.content if hasattr(choice, "delta") else choice.text) or ""
        reason = choice.finish_reason or reason
    return text, reason


def ended(choice) -> tuple[str, str]:
    """The same of a whole answer."""
    return (choice.message.content if hasattr(choice, "message") else choice.text), choice.finish_reason


def middle(text: str) -> str:
    """A piece out of the middle of a text, from within a word into the next."""
    at = text.find(" ", len(text) // 2)
    return text[at - 2 : at + 3] if at > 0 else text[len(text) // 2 :]


def refused(status: int, param: str | None, ask: Callable, code: str | None = None) -> None:
    """Demands that the client raises the error of that status, which names the field."""
    try:
        got = ask()
    except openai.APIStatusError as error:
        equal("status", error.status_code, status)
        equal("param", error.param, param)
        equal("type", error.type, "invalid_request_error")
        holds(code is None or error.code == code, f"code: got {error.code!r}, want {code!r}")
        holds(error.body["message"], "no message")
    else:
        raise Failed(f"nothing was refused: {got}")


@check("models: list and get agree")
def _(s: Server):
    listed = s.sync.models.list().data[0]
    s.model, s.context = listed.id, listed.max_model_len
    equal("model", s.sync.models.retrieve(listed.id), listed)
    refused(404, "model", lambda: s.sync.models.retrieve("no-such-model"))


@check("chat: a stream says the same as the whole answer")
def _(s: Server):
    whole, chunks = s.chat(), s.streamed()
    equal("text", joined(chunks), ended(whole.choices[0]))
    equal("finish_reason", whole.choices[0].finish_reason, "length")
    equal("role", (whole.choices[0].message.role, chunks[0].choices[0].delta.role), ("assistant", "assistant"))
    equal("ids of the chunks", len({chunk.id for chunk in chunks}), 1)
    equal("chunks with usage, which was not asked for", [c for c in chunks if c.usage], [])


@check("chat: the client's own stream helper puts the same together")
def _(s: Server):
    wanted = {"stop": middle(s.say())}  # the helper raises when an answer ends for its length
    with s.sync.chat.completions.stream(**s.asking(**wanted)) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    equal("text", ended(final.choices[0]), ended(s.chat(**wanted).choices[0]))
    holds({"chunk", "content.delta", "content.done"} <= kinds, f"events: {sorted(kinds)}")


@check("chat: include_usage counts as the whole answer does")
def _(s: Server):
    want = s.chat().usage
    *before, last = s.streamed(stream_options={"include_usage": True})
    equal("choices of the last chunk", last.choices, [])
    counts = [(u.prompt_tokens, u.completion_tokens, u.total_tokens) for u in (last.usage, want)]
    equal("usage", counts[0], counts[1])
    equal("total_tokens", want.total_tokens, want.prompt_tokens + want.completion_tokens)
    equal("usage before the last chunk", [c for c in before if c.usage], [])


@check("chat: content in parts is the content in one piece")
def _(s: Server):
    def turns(content):
        terse = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Hello."}]
        return [*terse, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": content}]

    equal("text", s.say(messages=turns([{"type": "text", "text": STORY}])), s.say(messages=turns(STORY)))


@check("chat: logprobs tell the text, streamed too")
def _(s: Server):
    wanted = {"logprobs": True, "top_logprobs": 3}
    choice, chunks = s.chat(**wanted).choices[0], s.streamed(**wanted)
    entries = choice.logprobs.content
    equal("tokens", len(entries), TOKENS)
    equal("bytes of the tokens", bytes(b for e in entries for b in e.bytes).decode(), choice.message.content)
    for e in entries:
        values = [top.logprob for top in e.top_logprobs]
        holds(len(values) == 3 and values == sorted(values, reverse=True), f"top_logprobs: {e}")
        holds(e.logprob <= 0 and e.top_logprobs[0].token == e.token, f"a greedy token is not the likeliest: {e}")
    equal("streamed", [e for c in chunks for choice in c.choices if choice.logprobs for e in choice.logprobs.content], entries)


@check("chat: n=2 gives two answers, streamed too")
def _(s: Server):
    wanted = {"n": 2, "temperature": 1, "seed": 11}
    whole, chunks = s.chat(**wanted), s.streamed(**wanted)
    equal("indices", [c.index for c in whole.choices], [0, 1])
    holds(ended(whole.choices[0]) != ended(whole.choices[1]), "both say the same at temperature 1")
    equal("streamed", [joined(chunks, 0), joined(chunks, 1)], [ended(c) for c in whole.choices])


@check("chat: a stop string ends the text before it, streamed too")
def _(s: Server):
    free = s.say()
    word = middle(free)
    want = (free.partition(word)[0], "stop")
    equal("text", ended(s.chat(stop=["no such text", word]).choices[0]), want)
    equal("streamed", joined(s.streamed(stop=word)), want)


@check("chat: a seed repeats its text, others differ")
def _(s: Server):
    first, again, *others = [s.say(temperature=1, seed=seed) for seed in (7, 7, 8, 9, 10)]
    equal("the second text of seed 7", again, first)
    holds({first, *others} != {first}, "four seeds say the same")


@check("chat: extra_body carries top_k, min_p, stop_token_ids and ignore_eos")
def _(s: Server):
    want = s.say()
    equal("top_k=1", s.say(temperature=2, extra_body={"top_k": 1}), want)
    equal("min_p=1", s.say(temperature=2, extra_body={"min_p": 1}), want)
    long = s.chat(text="Say yes.", max_tokens=64, extra_body={"ignore_eos": True})
    equal("ignore_eos", (long.choices[0].finish_reason, long.usage.completion_tokens), ("length", 64))


@check("completions: a stream says the same as the whole answer")
def _(s: Server):
    whole = s.complete()
    chunks = list(s.complete(stream=True, stream_options={"include_usage": True}))
    equal("text", joined(chunks), ended(whole.choices[0]))
    equal("usage", chunks[-1].usage.model_dump(), whole.usage.model_dump())


@check("completions: many prompts say what each says alone")
def _(s: Server):
    prompts = [f"Once upon a time {topic}" for topic in TOPICS[:3]]
    many = s.complete(prompt=prompts)
    equal("texts", [c.text for c in many.choices], [s.complete(prompt=p).choices[0].text for p in prompts])


@check("completions: echo begins with the prompt")
def _(s: Server):
    equal("text", s.complete(echo=True).choices[0].text, OPENING + s.complete().choices[0].text)


@check("completions: logprobs tell the text")
def _(s: Server):
    choice = s.complete(logprobs=2).choices[0]
    told = choice.logprobs
    equal("text", "".join(told.tokens), choice.text)
    for token, value, top in zip(told.tokens, told.token_logprobs, told.top_logprobs, strict=True):
        holds(len(top) == 2 and top[token] == max(top.values()) == value, f"{token!r} at {value}: {top}")


@check("completions: stop_reason names the stop string")
def _(s: Server):
    free = s.complete().choices[0].text
    word = middle(free)
    choice = s.complete(stop=[word]).choices[0]
    equal("text", ended(choice), (free.partition(word)[0], "stop"))
    equal("stop_reason", choice.stop_reason, word)


@check("refused: a 400 names its field")
def _(s: Server):
    for field, value in {"temperature": "hot", "top_p": 1.5, "max_tokens": 0, "n": 0, "stop": 7, "messages": []}.items():
        refused(400, field, functools.partial(s.chat, **{field: value}))
    refused(400, "messages.0.role", lambda: s.chat(messages=[{"role": "nobody", "content": ""}]))
    refused(400, "temperature", lambda: s.streamed(temperature="hot"))


@check("refused: another model, and more than the context holds")
def _(s: Server):
    refused(404, "model", lambda: s.chat(model="no-such-model"))
    refused(400, "messages", lambda: s.chat(text="river " * s.context), "context_length_exceeded")
    refused(400, "prompt", lambda: s.complete(prompt=[1] * s.context), "context_length_exceeded")


@check("cancel: a stream that is left does not keep the server busy")
def _(s: Server):
    want = s.say()
    for _ in range(4):
        stream = s.chat(stream=True, max_tokens=s.context - 256, extra_body={"ignore_eos": True})
        for _, chunk in zip(range(3), stream, strict=False):
            holds(chunk.choices, "a chunk has no choice")
        stream.close()
    equal("text", s.say(), want)


@check("async: says the same, streamed too")
async def _(s: Server):
    whole, chunks = s.chat(), s.streamed()
    async with openai.AsyncOpenAI(**s.options) as client:
        got = await client.chat.completions.create(**s.asking())
        stream = [c async for c in await client.chat.completions.create(**s.asking(stream=True))]
        text = await client.completions.create(**s.completing())
    equal("text", ended(got.choices[0]), ended(whole.choices[0]))
    equal("streamed", joined(stream), joined(chunks))
    equal("completion", ended(text.choices[0]), ended(s.complete().choices[0]))


@check("async: an error and a stream that is left")
async def _(s: Server):
    async with openai.AsyncOpenAI(**s.options) as client:
        try:
            await client.chat.completions.create(**s.asking(stream=True, temperature="hot"))
            raise Failed("nothing was refused")
        except openai.BadRequestError as error:
            equal("param", error.param, "temperature")
        task = asyncio.create_task(client.chat.completions.create(**s.asking(max_tokens=2000, extra_body={"ignore_eos": True})))
        await asyncio.sleep(0.3)
        task.cancel()
        again = await client.chat.completions.create(**s.asking())
    equal("text", ended(again.choices[0]), ended(s.chat().choices[0]))


@check("async: eight streams at once say what each says alone")
async def _(s: Server):
    stories = [f"Write a long story about {topic}." for topic in TOPICS]
    alone = [joined(s.streamed(text=text)) for text in stories]
    async with openai.AsyncOpenAI(**s.options) as client:

        async def follow(text: str):
            return joined([c async for c in await client.chat.completions.create(**s.asking(text=text, stream=True))])

        together = await asyncio.gather(*map(follow, stories))
    equal("texts", together, alone)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: check.py URL/v1", file=sys.stderr)
        return 2
    server, failed = Server(sys.argv[1]), 0
    for name, run in CHECKS:
        begun = time.monotonic()
        try:
            result = run(server)
            if asyncio.iscoroutine(result):
                asyncio.run(result)
        except Exception as error:  # a check that breaks is a failure, and the others still run
            failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}".replace("\n", "; "), flush=True)
        else:
            print(f"ok   {name} ({1000 * (time.monotonic() - begun):.0f} ms)", flush=True)
    if failed:
        print(f"{failed} checks failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
