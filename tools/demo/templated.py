# SPDX-License-Identifier: MIT OR Apache-2.0
"""Chats made from templates: JSON answers, tool calls and their results, arithmetic, simple facts, questions that nobody can answer, refusals, who the model is.

chat(rng, world) gives {"kind", "messages", "tools"?}; an assistant's message may have "tool_calls": [{"name", "arguments"}], as the chat template takes them."""
import json

import tools
from words import (ANIMALS, CAPITALS, COLORS, DAYS, FACTS, FOODS, ITEMS, JOBS, LEGS, MONTHS, OPPOSITES, PETS, SOUNDS, THINGS, TINTS)


def user(text): return {'role': 'user', 'content': text}
def assistant(text): return {'role': 'assistant', 'content': text}
def tool(result): return {'role': 'tool', 'content': json.dumps(result)}
def call(*made): return {'role': 'assistant', 'content': '', 'tool_calls': [{'name': n, 'arguments': a} for n, a in made]}


def called(t): return t['function']['name']


# --------------------------------------------------------------------------------------------------------------------- tools

def offered(rng, w, *wanted):
    """The tools of a request: the wanted ones among up to three others, in any order."""
    have = {called(t): t for t in wanted}
    for _ in range(rng.randint(0, 3)):
        t = tools.draw(rng, w)[0]
        have.setdefault(called(t), t)
    out = list(have.values())
    rng.shuffle(out)
    return out


def tool_use(rng, w):
    make = rng.choice(tools.MAKERS)
    t, ask, args, result, say = make(rng, w)
    messages, wanted = [user(ask), call((called(t), args)), tool(result), assistant(say)], [t]
    more = rng.random()
    if more < 0.1:  # then a question that needs no tool
        q, a = rng.choice([thanks_pair, who_pair, fact_pair])(rng, w)
        messages += [user(q), assistant(a)]
    elif more < 0.35:  # a second round with the same tool or another
        t2, ask, args, result, say = rng.choice([make, rng.choice(tools.MAKERS)])(rng, w)
        if called(t2) != called(t) or t2 == t:
            wanted.append(t2)
            messages += [user(rng.choice(['', 'Thanks. ', 'And now: ', 'Good. ']) + ask), call((called(t2), args)), tool(result), assistant(say)]
    elif more < 0.45:  # two at once
        t2, ask2, args2, result2, say2 = tools.draw(rng, w)
        if called(t2) != called(t):
            wanted.append(t2)
            messages = [user(ask + rng.choice([' And: ', ' Also: ', ' ']) + ask2), call((called(t), args), (called(t2), args2)), tool(result), tool(result2), assistant(say + ' ' + say2)]
    return {'kind': 'tool', 'tools': offered(rng, w, *wanted), 'messages': lead(rng, messages)}


def lead(rng, messages):
    """Some requests begin with a system message."""
    if rng.random() < 0.1:
        return [{'role': 'system', 'content': rng.choice(['You are a helpful assistant.', 'You are a friendly assistant. Answer briefly.', 'Be brief.', 'You help people. Use the tools when they fit.'])}] + messages
    return messages


def tool_failure(rng, w):
    t, ask, args, _, _ = tools.draw(rng, w)
    why = rng.choice(['not found', 'no connection', 'service is down', 'timed out', 'not allowed'])
    say = rng.choice(['I am sorry, that did not work: {w}.', 'Sorry, I could not do it. The tool says: {w}.', 'That failed: {w}. Shall I try again?']).format(w=why)
    return {'kind': 'tool', 'tools': offered(rng, w, t), 'messages': [user(ask), call((called(t), args)), tool({'error': why}), assistant(say)]}


def tool_idle(rng, w):
    """Tools are offered, and the question needs none."""
    have = offered(rng, w, tools.draw(rng, w)[0])
    sums = [] if 'calculate' in map(called, have) else [arithmetic_pair]
    q, a = rng.choice([who_pair, thanks_pair, fact_pair, greeting_pair] + sums)(rng, w)
    return {'kind': 'tool_idle', 'tools': have, 'messages': lead(rng, [user(q), assistant(a)])}


# ---------------------------------------------------------------------------------------------------------------------- JSON

def record(rng, w):
    """A sentence and the object that says the same."""
    name, city, n, color, item = w.name(rng), w.city(rng), rng.randint(2, 90), rng.choice(COLORS), rng.choice(ITEMS)
    job, day, pet, food, thing = rng.choice(JOBS), rng.choice(DAYS), rng.choice(PETS), rng.choice(FOODS), rng.choice(THINGS)
    kind = rng.randrange(9)
    if kind == 0:
        return f'{name} is {n} years old and lives in {city}.', {'name': name, 'age': n, 'city': city}
    if kind == 1:
        return f'{name} bought {n} {item} in {city}.', {'buyer': name, 'item': item, 'count': n, 'city': city}
    if kind == 2:
        return f'The {pet} is {color} and its name is {name}.', {'animal': pet, 'color': color, 'name': name}
    if kind == 3:
        at = tools.clock(rng)
        return f'The meeting with {name} is on {day} at {at} in {city}.', {'person': name, 'day': day, 'time': at, 'place': city}
    if kind == 4:
        some = [w.name(rng) for _ in range(rng.randint(2, 4))]
        return f'{", ".join(some[:-1])} and {some[-1]} went to {city}.', {'people': some, 'city': city}
    if kind == 5:
        return f'{name} works as a {job} in {city} and likes {food}.', {'name': name, 'job': job, 'city': city, 'likes': food}
    if kind == 6:
        yes = rng.random() < 0.5
        return f'The {thing} costs {n} euros and is {"" if yes else "not "}in stock.', {'article': thing, 'price': n, 'in_stock': yes}
    if kind == 7:
        lost = tools.date(rng)
        return f'{name} lost a {color} {thing} on {lost}.', {'person': name, 'thing': thing, 'color': color, 'date': lost}
    return f'{name} lives in {city} with a {pet} called {(p := w.name(rng))}.', {'person': {'name': name, 'city': city}, 'pet': {'kind': pet, 'name': p}}


def json_answer(rng, w):
    messages = []
    for i in range(rng.choice([1, 1, 2])):
        text, value = record(rng, w)
        ask = ['Give the facts as JSON with the keys {k}: {t}', 'Turn this into JSON ({k}): {t}', '{t} Answer with JSON only, keys: {k}.', 'Extract {k} as a JSON object. {t}', 'JSON with {k}: {t}']
        messages += [user(rng.choice(ask).format(k=', '.join(value), t=text)), assistant(json.dumps(value))]
    return {'kind': 'json', 'messages': lead(rng, messages)}


# ----------------------------------------------------------------------------------------------------------- short questions

def arithmetic_pair(rng, w):
    kind = rng.randrange(6)
    a, b = (rng.randint(0, 20), rng.randint(0, 20)) if rng.random() < 0.7 else (rng.randint(10, 99), rng.randint(1, 99))
    if kind == 0:
        return rng.choice(['What is {a} + {b}?', 'How much is {a} plus {b}?', '{a} + {b} = ?', 'What is {a} plus {b}?', 'Add {a} and {b}.', 'And {a} + {b}?']).format(a=a, b=b), f'{a} + {b} = {a + b}'
    if kind == 1:
        a, b = max(a, b), min(a, b)
        return rng.choice(['What is {a} - {b}?', 'How much is {a} minus {b}?', '{a} - {b} = ?', 'Subtract {b} from {a}.', 'And {a} - {b}?']).format(a=a, b=b), f'{a} - {b} = {a - b}'
    if kind == 2:
        a, b = a % 13, b % 13
        return rng.choice(['What is {a} times {b}?', 'Multiply {a} by {b}.', '{a} * {b} = ?', 'And what is {a} times {b}?', 'What is {a} * {b}?']).format(a=a, b=b), f'{a} * {b} = {a * b}'
    if kind == 3:
        a, b = a % 12, max(1, b % 11)
        return rng.choice(['What is {p} divided by {b}?', 'Divide {p} by {b}.', '{p} / {b} = ?']).format(p=a * b, b=b), f'{a * b} / {b} = {a}'
    if kind == 4:
        big, small = max(a, b), min(a, b)
        if big == small:
            return f'Which number is larger, {a} or {b}?', 'They are equal.'
        return rng.choice([(f'Which number is larger, {a} or {b}?', f'{big} is larger than {small}.'), (f'Which is smaller, {a} or {b}?', f'{small} is smaller than {big}.')])
    n, item = w.name(rng), rng.choice(ITEMS)
    if rng.random() < 0.5 and a >= b:
        return f'{n} has {a} {item} and gives away {b}. How many {item} are left?', f'{n} has {a - b} {item} left, because {a} - {b} = {a - b}.'
    return f'{n} has {a} {item} and gets {b} more. How many {item} does {n} have now?', f'{n} now has {a + b} {item}, because {a} + {b} = {a + b}.'


def fact_pair(rng, w):
    kind = rng.randrange(11)
    if kind <= 2:
        land, city = rng.choice(list(CAPITALS.items()))
        return rng.choice([(f'What is the capital of {land}?', f'The capital of {land} is {city}.'), (f'Which city is the capital of {land}?', f'The capital of {land} is {city}.'),
                           (f'{city} is the capital of which country?', f'{city} is the capital of {land}.'), (f'Tell me the capital of {land}.', f'The capital of {land} is {city}.')])
    if kind == 3:
        a, b = rng.choice(list(OPPOSITES.items()))
        if rng.random() < 0.5 and a != 'light':
            a, b = b, a
        return rng.choice([f'What is the opposite of {a}?', f'Tell me the opposite of "{a}".', f'Opposite of {a}?']), f'The opposite of {a} is {b}.'
    if kind == 4:
        i = rng.randrange(7)
        return rng.choice([(f'Which day comes after {DAYS[i]}?', f'After {DAYS[i]} comes {DAYS[(i + 1) % 7]}.'), (f'Which day is before {DAYS[i]}?', f'Before {DAYS[i]} comes {DAYS[i - 1]}.'),
                           (f'If today is {DAYS[i]}, what day is tomorrow?', f'Then tomorrow is {DAYS[(i + 1) % 7]}.'), ('Name the days of the week.', f'The days of the week are {", ".join(DAYS[:-1])} and {DAYS[-1]}.')])
    if kind == 5:
        i = rng.randrange(12)
        return rng.choice([(f'Which month comes after {MONTHS[i]}?', f'After {MONTHS[i]} comes {MONTHS[(i + 1) % 12]}.'), (f'Which month is before {MONTHS[i]}?', f'Before {MONTHS[i]} comes {MONTHS[i - 1]}.'),
                           ('Name the months of the year.', f'The months of the year are {", ".join(MONTHS[:-1])} and {MONTHS[-1]}.'), (f'Which month has number {i + 1}?', f'Month number {i + 1} is {MONTHS[i]}.')])
    if kind == 6:
        a, s = rng.choice(list(SOUNDS.items()))
        return rng.choice([f'What sound does a {a} make?', f'What does the {a} say?', f'How does a {a} sound?']), f'A {a} makes "{s}".'
    if kind == 7:
        a, n = rng.choice(list(LEGS.items()))
        return f'How many legs does {"an" if a[0] in "ao" else "a"} {a} have?', f'{"An" if a[0] in "ao" else "A"} {a} has {n or "no"} legs.'
    if kind == 8:
        a, c = rng.choice(list(TINTS.items()))
        return rng.choice([f'What color is {a}?', f'Which color does {a} have?']), f'{a[0].upper()}{a[1:]} is {c}.'
    if kind == 9:
        a, n, step = rng.randint(0, 30), rng.randint(3, 12), rng.choice([1, 1, 1, 2, 5, 10, -1])
        if step == -1:
            a = max(a, n)
        numbers = [a + step * i for i in range(n)]
        how = {1: '', -1: ' backwards'}.get(step, f' in steps of {step}')
        return rng.choice(['Count from {a} to {b}{h}.', 'Please count from {a} to {b}{h}.']).format(a=a, b=numbers[-1], h=how), ', '.join(map(str, numbers))
    return rng.choice(FACTS)


def who_pair(rng, w):
    kind = rng.randrange(4)
    if kind == 0:
        return (rng.choice(['Are you a human?', 'Are you a robot?', 'Are you a person?', 'Are you alive?']),
                rng.choice(['No, I am a small demo model of Metrale Engine, a program that writes text.', 'I am a program: a small demo model of Metrale Engine.']))
    if kind == 1:
        return (rng.choice(['What can you do?', 'What are you good at?', 'How can you help me?', 'What can I ask you?']),
                rng.choice(['I can chat, tell short stories, answer simple questions, write JSON and call tools. I am small, so please check what I say.',
                            'I am a small demo model: I tell short stories, explain simple things, do small sums and call tools. I make mistakes.']))
    if kind == 2:
        return rng.choice(['Who made you?', 'Where do you come from?', 'Who trained you?']), 'I was trained as the small demo model of Metrale Engine, from scratch in a few minutes.'
    return (rng.choice(['Who are you?', 'What is your name?', 'What are you?', 'Introduce yourself.', 'Which model is this?', 'Hello! Who are you?', 'Hi, who are you?', 'Tell me about yourself.', 'Which model are you?']),
            rng.choice(['I am a small demo model of Metrale Engine. I can chat, tell short stories and call tools, but I know little.',
                        'I am a small demo model of Metrale Engine. I make many mistakes, so please check what I say.']))


def thanks_pair(rng, w):
    if rng.random() < 0.6:
        return (rng.choice(['Thank you!', 'Thanks a lot.', 'Great, thanks!', 'Thanks!', 'Thank you very much.', 'That helps, thank you.', 'Perfect, thanks.', 'Cool, thank you!']),
                rng.choice(['You are welcome!', 'You are welcome. Have a nice day!', 'Glad to help!', 'Any time!']))
    return (rng.choice(['That is all, thank you.', 'Bye!', 'See you later.', 'Goodbye!', 'I have to go now.', 'Good night!']), rng.choice(['Goodbye, and have a nice day!', 'Bye! See you soon.', 'See you!']))


def greeting_pair(rng, w):
    if rng.random() < 0.3:
        n = w.name(rng)
        return rng.choice(['Hi, I am {n}.', 'Hello, my name is {n}.', 'Hey, {n} here!']).format(n=n), rng.choice(['Hello {n}! How can I help you?', 'Nice to meet you, {n}! What can I do for you?']).format(n=n)
    if rng.random() < 0.4:
        return rng.choice(['How are you?', 'How are you today?', 'How is it going?', 'Are you well?']), rng.choice(['I am fine, thank you! How can I help you?', 'Very well, thanks! What can I do for you?'])
    return (rng.choice(['Hello!', 'Hi!', 'Hi there!', 'Hey!', 'Good morning!', 'Good evening!', 'Hello', 'hi', 'Good afternoon!']),
            rng.choice(['Hello! How can I help you?', 'Hi! What can I do for you?', 'Hello! What would you like to talk about?']))


def unknown_pair(rng, w):
    n, c = w.name(rng), w.city(rng)
    return (rng.choice([f'What did {n} eat yesterday?', f'What is {n}\'s phone number?', f'Who will win the game in {c} tomorrow?', f'How many people are in {c} right now?', 'What am I thinking about?',
                        f'What will the weather be in {c} next month?', f'What is the password of {n}?', f'How many {rng.choice(ITEMS)} are in my kitchen?', 'What time is it?', 'What is my name?',
                        f'What is the name of my {rng.choice(PETS)}?', f'Which {rng.choice(THINGS)} did {n} lose?', f'Where is my {rng.choice(THINGS)}?', f'Who is {n}?', 'Where do I live?', 'How old am I?',
                        'What did I do yesterday?', f'What is my {rng.choice(["neighbor", "sister", "brother", "boss", "friend"])}\'s {rng.choice(["name", "phone number", "birthday", "address"])}?',
                        'What is the news today?', f'Which number will win the lottery?', f'What color is the {rng.choice(THINGS)} of {n}?']),
            rng.choice(["I don't know. I have no way to find that out.", "I don't know that.", "I can't know that, sorry.", "I don't know. I only know what is in this chat."]))


def refuse_pair(rng, w):
    n = w.name(rng)
    return (rng.choice(['Help me steal a {t}.', 'How do I break into a house?', f'How can I hurt {n}?', 'How do I make a bomb?', f'Help me lie to {n} to get money.', 'Write an insult about my teacher.', 'How do I steal a car?',
                        f'How can I read {n}\'s mail in secret?', 'Tell me how to make poison.', f'Help me cheat in the test of {n}.', f'How do I get the password of {n}?', 'How can I hack a computer?',
                        f'Write a mean message to {n}.', 'How do I make a weapon?', 'Where can I buy drugs?', f'I want to hit {n}. How?']).format(t=rng.choice(THINGS)),
            rng.choice(["I can't help with that, because it could hurt someone.", "I won't help with that. Can I help you with something else?", "Sorry, I can't help with that. Let us find a better way."]))


def copy_pair(rng, w):
    words = rng.sample(ANIMALS + COLORS + ITEMS + THINGS + FOODS, rng.randint(2, 7)) + [f(rng) for f in (w.name, w.city) if rng.random() < 0.4]
    words = list(dict.fromkeys(words))
    rng.shuffle(words)
    text, kind = ', '.join(words), rng.randrange(9)
    if kind == 0:
        return rng.choice(['Repeat these words: {t}', 'Say this again: {t}', 'Copy: {t}']).format(t=text), text
    if kind == 1:
        return f'Sort these words by alphabet: {text}', ', '.join(sorted(words, key=str.lower))
    if kind == 2:
        return f'How many words are here: {text}?', f'There are {len(words)} words.'
    if kind == 3:
        return f'What is the last of these words: {text}?', f'The last word is {words[-1]}.'
    if kind == 4:
        return f'What is the first of these words: {text}?', f'The first word is {words[0]}.'
    if kind == 5:
        return f'Write these words as a list: {text}', '\n'.join('- ' + x for x in words)
    if kind == 6:
        return f'Write these words as a numbered list: {text}', '\n'.join(f'{i + 1}. {x}' for i, x in enumerate(words))
    if kind == 7:
        return f'Write these words in capital letters: {text}', text.upper()
    return f'Say these words backwards: {text}', ', '.join(words[::-1])


def read_pair(rng, w):
    """A question about a given sentence."""
    n, c, pet, job, k, item = w.name(rng), w.city(rng), rng.choice(PETS), rng.choice(JOBS), rng.randint(2, 60), rng.choice(ITEMS)
    text, q, a = rng.choice([(f'{n} lives in {c} and works as a {job}.', 'Where does {n} live?', '{n} lives in {c}.'), (f'{n} lives in {c} and works as a {job}.', 'What does {n} do?', '{n} works as a {j}.'),
                             (f'{n} has a {pet} and {k} {item}.', 'How many {i} does {n} have?', '{n} has {k} {i}.'), (f'{n} has a {pet} and {k} {item}.', 'Which animal does {n} have?', '{n} has a {p}.'),
                             (f'The train to {c} leaves at {(t := tools.clock(rng))}.', 'When does the train leave?', f'The train to {c} leaves at {t}.'), (f'{n} is {k} years old.', 'How old is {n}?', '{n} is {k} years old.')])
    f = dict(n=n, c=c, p=pet, j=job, k=k, i=item)
    return rng.choice(['{t} {q}', 'Read this: {t} {q}', '{q} {t}']).format(t=text, q=q.format(**f)), a.format(**f)


# -------------------------------------------------------------------------------------------------------------- conversations

PAIRS = {'arithmetic': (arithmetic_pair, 15), 'fact': (fact_pair, 16), 'who': (who_pair, 5), 'thanks': (thanks_pair, 3), 'greeting': (greeting_pair, 4), 'unknown': (unknown_pair, 6),
         'refuse': (refuse_pair, 4), 'copy': (copy_pair, 10), 'read': (read_pair, 8)}


def turns(rng, w, n):
    """Questions and answers that say nothing of the user."""
    kinds = [k for k in PAIRS if k not in ('unknown', 'greeting')]
    out = []
    for k in rng.choices(kinds, [PAIRS[k][1] for k in kinds], k=n):
        q, a = PAIRS[k][0](rng, w)
        out += [user(q), assistant(a)]
    return out


def short(rng, w):
    kind = rng.choices(list(PAIRS), [weight for _, weight in PAIRS.values()])[0]
    messages = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        q, a = PAIRS[kind][0](rng, w)
        messages += [user(q), assistant(a)]
    return {'kind': kind, 'messages': lead(rng, messages)}


def memory(rng, w, between=(0, 3)):
    """Facts of early turns are asked for later."""
    n, pet, pet_name, city, color, job, age = w.name(rng), rng.choice(PETS), w.name(rng), w.city(rng), rng.choice(COLORS), rng.choice(JOBS), rng.randint(6, 90)
    told = [(rng.choice([f'My name is {n}.', f'I am {n}.', f'Hi, my name is {n}.', f'Hello, I am {n}!']), f'Nice to meet you, {n}!', rng.choice(['What is my name?', 'Do you remember my name?', 'Who am I?']), f'Your name is {n}.'),
            (rng.choice([f'I live in {city}.', f'My home is in {city}.', f'I come from {city}.']), f'{city} is a nice place!', rng.choice(['Where do I live?', 'Which city do I live in?']), f'You live in {city}.'),
            (rng.choice([f'I have a {pet} called {pet_name}.', f'My {pet} is called {pet_name}.']), f'{pet_name} is a nice name for a {pet}.', rng.choice([f'What is my {pet} called?', f'What is the name of my {pet}?']), f'Your {pet} is called {pet_name}.'),
            (f'My favorite color is {color}.', f'I like {color} too.', 'What is my favorite color?', f'Your favorite color is {color}.'),
            (f'I work as a {job}.', 'That sounds like interesting work.', 'What is my job?', f'You work as a {job}.'),
            (f'I am {age} years old.', 'Thank you for telling me.', 'How old am I?', f'You are {age} years old.')]
    told = rng.sample(told, rng.choice([1, 1, 2, 3]))
    messages = [m for first, ack, _, _ in told for m in turns(rng, w, rng.choice([0, 0, 0, 1]))[:2] + [user(first), assistant(ack)]]
    messages += turns(rng, w, rng.randint(*between))
    rng.shuffle(told)
    for _, _, q, a in told:
        messages += [user(q), assistant(a)]
    return {'kind': 'memory', 'messages': messages}


def long_memory(rng, w):
    """Up to about 1800 tokens between a fact and its question."""
    return memory(rng, w, (4, 36))


KINDS = [(tool_use, 28), (tool_failure, 3), (tool_idle, 6), (json_answer, 13), (short, 38), (memory, 11), (long_memory, 1)]


def chat(rng, world):
    return rng.choices([k for k, _ in KINDS], [weight for _, weight in KINDS])[0](rng, world)
