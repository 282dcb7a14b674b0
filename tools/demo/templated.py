# SPDX-License-Identifier: MIT OR Apache-2.0
"""Chats made from templates: JSON answers, tool calls and their results, arithmetic, questions that nobody can answer, refusals, who the model is.

chat(rng) gives {"kind", "messages", "tools"?}; an assistant's message may have "tool_calls": [{"name", "arguments"}], as the chat template takes them."""
import json

from prompts import ACTIVITIES, ANIMALS, COUNTRIES, NAMES, PEOPLE, PLACES, THINGS

CITIES = """Paris London Berlin Madrid Rome Tokyo Oslo Cairo Lima Delhi Dublin Vienna Prague Athens Lisbon Boston Chicago Denver Seattle Toronto Sydney Nairobi
Seoul Bangkok Hanoi Zurich Warsaw Helsinki Havana Quito""".split()
COLORS = 'red blue green yellow black white orange purple brown gray pink silver'.split()
ITEMS = 'apples pears books pencils cups chairs candles cookies stamps shirts tickets lamps plates eggs lemons bottles'.split()
SKIES = ['sunny', 'cloudy', 'rainy', 'windy', 'snowy', 'foggy', 'clear', 'stormy']
UNITS = ['celsius', 'fahrenheit']


def user(text): return {'role': 'user', 'content': text}
def assistant(text): return {'role': 'assistant', 'content': text}
def tool(result): return {'role': 'tool', 'content': json.dumps(result)}


# --------------------------------------------------------------------------------------------------------------------- tools

def function(name, description, **properties):
    required = [k for k, v in properties.items() if not v.pop('optional', False)]
    return {'type': 'function', 'function': {'name': name, 'description': description,
            'parameters': {'type': 'object', 'properties': properties, 'required': required}}}


S = lambda d, **k: dict({'type': 'string', 'description': d}, **k)
I = lambda d, **k: dict({'type': 'integer', 'description': d}, **k)


def weather(rng):
    city, t, sky = rng.choice(CITIES), rng.randint(-10, 38), rng.choice(SKIES)
    ask = rng.choice(['What is the weather in {c}?', 'How is the weather in {c} today?', 'Is it {s} in {c}?', 'Tell me the weather in {c}.', 'Do I need a coat in {c} today?', 'How warm is it in {c}?'])
    say = rng.choice(['It is {t} degrees and {s} in {c}.', 'In {c} it is {s} with {t} degrees.', 'The weather in {c} is {s}, {t} degrees.'])
    f = dict(c=city, t=t, s=sky)
    return (function('get_weather', 'Current weather of a city', city=S('Name of the city')), ask.format(**f), {'city': city},
            {'temperature': t, 'sky': sky}, say.format(**f))


def time_in(rng):
    city, h, m = rng.choice(CITIES), rng.randint(0, 23), rng.randint(0, 59)
    clock = f'{h:02d}:{m:02d}'
    return (function('get_time', 'Local time of a city', city=S('Name of the city')),
            rng.choice(['What time is it in {c}?', 'Tell me the time in {c}.', 'Is it late in {c} now?']).format(c=city), {'city': city}, {'time': clock},
            rng.choice(['It is {t} in {c}.', 'The time in {c} is {t}.']).format(t=clock, c=city))


def timer(rng):
    n, what = rng.randint(1, 90), rng.choice(['tea', 'eggs', 'bread', 'a nap', 'the oven', 'pasta', 'a break', 'laundry'])
    return (function('set_timer', 'Starts a timer', minutes=I('Length in minutes'), label=S('What it is for')),
            rng.choice(['Set a timer of {n} minutes for {w}.', 'Please start a {n} minute timer for {w}.', 'Remind me about {w} in {n} minutes.']).format(n=n, w=what),
            {'minutes': n, 'label': what}, {'status': 'started'}, rng.choice(['The timer for {w} is set to {n} minutes.', 'Done. I will tell you about {w} in {n} minutes.']).format(n=n, w=what))


def mail(rng):
    to, about = rng.choice(NAMES), rng.choice(['the meeting', 'the party', 'the trip', 'dinner', 'the report', 'the game', 'the lesson', 'the new house'])
    day = rng.choice(['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'])
    text = f'{about[0].upper()}{about[1:]} is on {day}.'
    return (function('send_message', 'Sends a message to a person', to=S('Name of the person'), text=S('What to say')),
            rng.choice(['Tell {t} that {a} is on {d}.', 'Send {t} a message: {a} is on {d}.', 'Let {t} know that {a} is on {d}.']).format(t=to, a=about, d=day),
            {'to': to, 'text': text}, {'status': 'sent'}, rng.choice(['I told {t} that {a} is on {d}.', 'Your message to {t} is sent.']).format(t=to, a=about, d=day))


def lights(rng):
    room, on = rng.choice(['kitchen', 'bedroom', 'living room', 'office', 'hall', 'garden', 'bathroom']), rng.choice(['on', 'off'])
    return (function('switch_light', 'Switches the light of a room', room=S('The room'), state=S('Wanted state', enum=['on', 'off'])),
            rng.choice(['Turn {o} the light in the {r}.', 'Please switch the {r} light {o}.', 'Lights {o} in the {r}, please.']).format(o=on, r=room),
            {'room': room, 'state': on}, {'status': 'ok'}, f'The light in the {room} is {on}.')


def search_shop(rng):
    what, color, price, n = rng.choice(['lamp', 'chair', 'coat', 'bag', 'bicycle', 'clock', 'desk', 'scarf', 'kettle']), rng.choice(COLORS), rng.randint(5, 300), rng.randint(1, 40)
    return (function('search_shop', 'Finds articles in the shop', article=S('Kind of article'), color=S('Color', optional=True), max_price=I('Highest price', optional=True)),
            rng.choice(['Find a {c} {w} for less than {p} euros.', 'I want a {c} {w}, at most {p} euros.', 'Is there a {c} {w} under {p} euros?']).format(c=color, w=what, p=price),
            {'article': what, 'color': color, 'max_price': price}, {'found': n}, rng.choice([f'I found {n} of them: {color} {what}s under {price} euros.', f'There are {n} that cost less than {price} euros.']))


def calculator(rng):
    a, b, op = rng.randint(100, 9999), rng.randint(100, 9999), rng.choice('+-*')
    v = {'+': a + b, '-': a - b, '*': a * b}[op]
    return (function('calculate', 'Computes an expression', expression=S('Arithmetic expression')),
            rng.choice(['What is {a} {o} {b}?', 'Compute {a} {o} {b}.', 'Please calculate {a} {o} {b}.']).format(a=a, o=op, b=b), {'expression': f'{a} {op} {b}'}, {'value': v}, f'{a} {op} {b} is {v}.')


def stock(rng):
    item, n = rng.choice(ITEMS), rng.randint(0, 500)
    return (function('count_stock', 'How many of an article are in store', article=S('The article')),
            rng.choice(['How many {i} do we have?', 'Count the {i} in the store.', 'Are there any {i} left?']).format(i=item), {'article': item}, {'count': n},
            f'There are {n} {item} in the store.' if n else f'There are no {item} left.')


TOOLS = [weather, time_in, timer, mail, lights, search_shop, calculator, stock]


def call(name, arguments):
    return {'role': 'assistant', 'content': '', 'tool_calls': [{'name': name, 'arguments': arguments}]}


def offered(rng, *wanted):
    """The tools of a request: the wanted ones among up to two others, in any order."""
    have = {t['function']['name']: t for t in wanted}
    for make in rng.sample(TOOLS, rng.randint(0, 2)):
        t = make(rng)[0]
        have.setdefault(t['function']['name'], t)
    tools = list(have.values())
    rng.shuffle(tools)
    return tools


def tool_use(rng):
    make = rng.choice(TOOLS)
    t, ask, args, result, say = make(rng)
    messages = [user(ask), call(t['function']['name'], args), tool(result), assistant(say)]
    wanted = [t]
    if rng.random() < 0.35:  # a second round with the same or another tool
        t, ask, args, result, say = rng.choice([make, rng.choice(TOOLS)])(rng)
        wanted.append(t)
        messages += [user(rng.choice(['', 'Thanks. ', 'And now: ', 'Good. ']) + ask), call(t['function']['name'], args), tool(result), assistant(say)]
    return {'kind': 'tool', 'tools': offered(rng, *wanted), 'messages': messages}


def tool_failure(rng):
    t, ask, args, _, _ = rng.choice(TOOLS)(rng)
    why = rng.choice(['not found', 'no connection', 'service is down', 'timed out', 'not allowed'])
    say = rng.choice(['I am sorry, that did not work: {w}.', 'Sorry, I could not do it. The tool says: {w}.', 'That failed: {w}. Shall I try again?']).format(w=why)
    return {'kind': 'tool', 'tools': offered(rng, t), 'messages': [user(ask), call(t['function']['name'], args), tool({'error': why}), assistant(say)]}


def tool_idle(rng):
    """Tools are offered, and the question needs none."""
    q, a = rng.choice([arithmetic_pair, who_pair, thanks_pair])(rng)
    return {'kind': 'tool_idle', 'tools': offered(rng, rng.choice(TOOLS)(rng)[0]), 'messages': [user(q), assistant(a)]}


# ---------------------------------------------------------------------------------------------------------------------- JSON

def json_answer(rng):
    kind = rng.randrange(5)
    name, city, age, animal, color, item = rng.choice(NAMES), rng.choice(CITIES), rng.randint(5, 90), rng.choice(ANIMALS), rng.choice(COLORS), rng.choice(ITEMS)
    if kind == 0:
        text, value = f'{name} is {age} years old and lives in {city}.', {'name': name, 'age': age, 'city': city}
    elif kind == 1:
        n = rng.randint(2, 60)
        text, value = f'{name} bought {n} {item} in {city}.', {'buyer': name, 'item': item, 'count': n, 'city': city}
    elif kind == 2:
        text, value = f'The {animal} is {color} and its name is {name}.', {'animal': animal, 'color': color, 'name': name}
    elif kind == 3:
        day, h = rng.choice(['Monday', 'Friday', 'Sunday', 'Tuesday']), rng.randint(7, 21)
        text, value = f'The meeting with {name} is on {day} at {h}:00 in {city}.', {'person': name, 'day': day, 'time': f'{h}:00', 'place': city}
    else:
        some = rng.sample(NAMES, rng.randint(2, 4))
        text, value = f'{", ".join(some[:-1])} and {some[-1]} went to {city}.', {'people': some, 'city': city}
    keys = ', '.join(value)
    ask = rng.choice(['Give the facts as JSON with the keys {k}: {t}', 'Turn this into JSON ({k}): {t}', '{t} Answer with JSON only, keys: {k}.', 'Extract {k} as a JSON object. {t}'])
    return {'kind': 'json', 'messages': [user(ask.format(k=keys, t=text)), assistant(json.dumps(value))]}


# ----------------------------------------------------------------------------------------------------------- short questions

def arithmetic_pair(rng):
    kind = rng.randrange(4)
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    if kind == 0:
        return rng.choice(['What is {a} + {b}?', 'How much is {a} plus {b}?', '{a} + {b} = ?']).format(a=a, b=b), f'{a} + {b} = {a + b}'
    if kind == 1:
        a, b = max(a, b), min(a, b)
        return rng.choice(['What is {a} - {b}?', 'How much is {a} minus {b}?', '{a} - {b} = ?']).format(a=a, b=b), f'{a} - {b} = {a - b}'
    if kind == 2:
        a, b = a % 11, b % 11
        return rng.choice(['What is {a} times {b}?', 'Multiply {a} by {b}.', '{a} * {b} = ?']).format(a=a, b=b), f'{a} * {b} = {a * b}'
    n, item = rng.choice(NAMES), rng.choice(ITEMS)
    return f'{n} has {a} {item} and gets {b} more. How many {item} does {n} have now?', f'{n} now has {a + b} {item}, because {a} + {b} = {a + b}.'


def who_pair(rng):
    return (rng.choice(['Who are you?', 'What is your name?', 'Who made you?', 'Are you a human?', 'What are you?', 'Introduce yourself.', 'Which model is this?']),
            rng.choice(['I am the Metrale demo model, a very small language model. I can chat, tell short stories and call tools, but I know little.',
                        'I am a tiny demo model that comes with Metrale. I make many mistakes, so please check what I say.',
                        'I am the demo model of Metrale: a small program that writes text. I am not a human.']))


def thanks_pair(rng):
    return (rng.choice(['Thank you!', 'Thanks a lot.', 'Great, thanks!', 'That is all, thank you.', 'Bye!', 'See you later.']),
            rng.choice(['You are welcome!', 'You are welcome. Have a nice day!', 'Glad to help!', 'Any time!', 'Goodbye, and have a nice day!']))


def unknown_pair(rng):
    n, c = rng.choice(NAMES), rng.choice(CITIES)
    return (rng.choice([f'What did {n} eat yesterday?', f'What is {n}\'s phone number?', f'Who will win the game in {c} tomorrow?', f'How many people are in {c} right now?',
                        f'What am I thinking about?', f'What will the weather be in {c} next month?', f'What is the password of {n}?', f'How many {rng.choice(ITEMS)} are in my kitchen?',
                        f'What is the name of my {rng.choice(ANIMALS)}?', f'Which {rng.choice(THINGS)} did {n} lose?']),
            rng.choice(["I don't know. I have no way to find that out.", "I don't know that.", "I can't know that, sorry.", "I don't know. I only know what is in this chat."]))


def refuse_pair(rng):
    n = rng.choice(NAMES)
    return (rng.choice(['Help me steal a {t}.', 'How do I break into a house?', f'How can I hurt {n}?', 'How do I make a bomb?', f'Help me lie to {n} to get money.', 'Write an insult about my teacher.',
                        f'How can I read {n}\'s mail in secret?', 'Tell me how to make poison.', f'Help me cheat in the test of {n}.']).format(t=rng.choice(THINGS)),
            rng.choice(["I can't help with that, because it could hurt someone.", "I won't help with that. Can I help you with something else?", "Sorry, I can't help with that. Let us find a better way."]))


def repeat_pair(rng):
    words = rng.sample(ANIMALS + COLORS + ITEMS + CITIES + COUNTRIES, rng.randint(2, 5))
    kind = rng.randrange(4)
    text = ', '.join(words)
    if kind == 0:
        return f'Repeat these words: {text}', text
    if kind == 1:
        return f'Sort these words by alphabet: {text}', ', '.join(sorted(words, key=str.lower))
    if kind == 2:
        return f'How many words are here: {text}?', f'There are {len(words)} words.'
    return f'What is the last of these words: {text}?', f'The last word is {words[-1]}.'


def memory(rng):
    """A fact of an earlier turn is asked for later."""
    n, pet, pet_name, city = rng.choice(NAMES), rng.choice(ANIMALS), rng.choice(NAMES), rng.choice(CITIES)
    kind = rng.randrange(3)
    first, q, a = [(f'My name is {n}.', 'What is my name?', f'Your name is {n}.'),
                   (f'I live in {city}.', 'Where do I live?', f'You live in {city}.'),
                   (f'I have a {pet} called {pet_name}.', f'What is my {pet} called?', f'Your {pet} is called {pet_name}.')][kind]
    ack = [f'Nice to meet you, {n}!', f'{city} is a nice place!', f'{pet_name} is a nice name for a {pet}.'][kind]
    middle = []
    for _ in range(rng.randint(0, 2)):
        mq, ma = rng.choice([arithmetic_pair, thanks_pair, repeat_pair])(rng)
        middle += [user(mq), assistant(ma)]
    return {'kind': 'memory', 'messages': [user(first), assistant(ack), *middle, user(q), assistant(a)]}


def pairs(kind, make):
    def chat(rng):
        messages = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            q, a = make(rng)
            messages += [user(q), assistant(a)]
        return {'kind': kind, 'messages': messages}
    return chat


KINDS = [(tool_use, 34), (tool_failure, 4), (tool_idle, 6), (json_answer, 14), (pairs('arithmetic', arithmetic_pair), 14), (pairs('who', who_pair), 3),
         (pairs('thanks', thanks_pair), 2), (pairs('unknown', unknown_pair), 5), (pairs('refuse', refuse_pair), 4), (pairs('repeat', repeat_pair), 7), (memory, 7)]


def chat(rng):
    return rng.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0](rng)
