# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tools for templates: each maker draws a use of one tool, (tool, question, arguments, result, answer)."""
from words import COLORS, DAYS, FOODS, ITEMS, JOBS, MONTHS, SKIES, THINGS


def function(name, description, /, **properties):
    required = [k for k, v in properties.items() if not v.pop('optional', False)]
    return {'type': 'function', 'function': {'name': name, 'description': description,
            'parameters': {'type': 'object', 'properties': properties, 'required': required}}}


S = lambda d, **k: dict({'type': 'string', 'description': d}, **k)
I = lambda d, **k: dict({'type': 'integer', 'description': d}, **k)


def date(rng):
    return f'{rng.randint(2020, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}'


def clock(rng):
    return f'{rng.randint(0, 23):02d}:{rng.choice([0, 15, 30, 45, rng.randint(0, 59)]):02d}'


def weather(rng, w):
    city, t, sky = w.city(rng), rng.randint(-10, 38), rng.choice(SKIES)
    ask = rng.choice(['What is the weather in {c}?', 'How is the weather in {c} today?', 'Is it {s} in {c}?', 'Tell me the weather in {c}.', 'Do I need a coat in {c} today?', 'How warm is it in {c}?',
                      "What's the weather like in {c}?", 'Weather in {c}, please.', 'I am going to {c}. What is the weather there?'])
    say = rng.choice(['It is {t} degrees and {s} in {c}.', 'In {c} it is {s} with {t} degrees.', 'The weather in {c} is {s}, {t} degrees.'])
    f = dict(c=city, t=t, s=sky)
    return (function('get_weather', rng.choice(['Current weather of a city', 'Get the weather', 'Get the current weather in a given location']), city=S('Name of the city')),
            ask.format(**f), {'city': city}, {'temperature': t, 'sky': sky}, say.format(**f))


def weather_units(rng, w):
    """The same with the names that clients' examples use."""
    city, t, unit = w.city(rng), rng.randint(-10, 95), rng.choice(['celsius', 'fahrenheit'])
    return (function('get_current_weather', 'Get the current weather in a given location', location=S('The city'), unit=S('Unit of temperature', enum=['celsius', 'fahrenheit'])),
            rng.choice(['What is the weather in {c} in {u}?', "What's the weather like in {c} today, in {u}?", 'How warm is it in {c}? Use {u}.']).format(c=city, u=unit), {'location': city, 'unit': unit},
            {'temperature': t, 'unit': unit}, f'It is {t} degrees {unit} in {city}.')


def time_in(rng, w):
    city, at = w.city(rng), clock(rng)
    return (function('get_time', 'Local time of a city', city=S('Name of the city')),
            rng.choice(['What time is it in {c}?', 'Tell me the time in {c}.', 'Is it late in {c} now?', 'How late is it in {c}?']).format(c=city), {'city': city}, {'time': at},
            rng.choice(['It is {t} in {c}.', 'The time in {c} is {t}.']).format(t=at, c=city))


def timer(rng, w):
    n, what = rng.randint(1, 90), rng.choice(['tea', 'eggs', 'bread', 'a nap', 'the oven', 'pasta', 'a break', 'laundry'] + FOODS)
    return (function('set_timer', 'Starts a timer', minutes=I('Length in minutes'), label=S('What it is for')),
            rng.choice(['Set a timer of {n} minutes for {w}.', 'Please start a {n} minute timer for {w}.', 'Remind me about {w} in {n} minutes.']).format(n=n, w=what),
            {'minutes': n, 'label': what}, {'status': 'started'}, rng.choice(['The timer for {w} is set to {n} minutes.', 'Done. I will tell you about {w} in {n} minutes.']).format(n=n, w=what))


def mail(rng, w):
    to, about = w.name(rng), rng.choice(['the meeting', 'the party', 'the trip', 'dinner', 'the report', 'the game', 'the lesson', 'the new house', 'the concert', 'lunch'])
    day = rng.choice(DAYS)
    text = f'{about[0].upper()}{about[1:]} is on {day}.'
    return (function('send_message', 'Sends a message to a person', to=S('Name of the person'), text=S('What to say')),
            rng.choice(['Tell {t} that {a} is on {d}.', 'Send {t} a message: {a} is on {d}.', 'Let {t} know that {a} is on {d}.']).format(t=to, a=about, d=day),
            {'to': to, 'text': text}, {'status': 'sent'}, rng.choice(['I told {t} that {a} is on {d}.', 'Your message to {t} is sent.']).format(t=to, a=about, d=day))


def lights(rng, w):
    room, on = rng.choice(['kitchen', 'bedroom', 'living room', 'office', 'hall', 'garden', 'bathroom']), rng.choice(['on', 'off'])
    return (function('switch_light', 'Switches the light of a room', room=S('The room'), state=S('Wanted state', enum=['on', 'off'])),
            rng.choice(['Turn {o} the light in the {r}.', 'Please switch the {r} light {o}.', 'Lights {o} in the {r}, please.']).format(o=on, r=room),
            {'room': room, 'state': on}, {'status': 'ok'}, f'The light in the {room} is {on}.')


def search_shop(rng, w):
    what, color, price, n = rng.choice(THINGS), rng.choice(COLORS), rng.randint(5, 300), rng.randint(1, 40)
    return (function('search_shop', 'Finds articles in the shop', article=S('Kind of article'), color=S('Color', optional=True), max_price=I('Highest price', optional=True)),
            rng.choice(['Find a {c} {w} for less than {p} euros.', 'I want a {c} {w}, at most {p} euros.', 'Is there a {c} {w} under {p} euros?']).format(c=color, w=what, p=price),
            {'article': what, 'color': color, 'max_price': price}, {'found': n}, rng.choice([f'I found {n} of them: {color} {what}s under {price} euros.', f'There are {n} that cost less than {price} euros.']))


def calculator(rng, w):
    a, b, op = rng.randint(10, 9999), rng.randint(10, 9999), rng.choice('+-*')
    v = {'+': a + b, '-': a - b, '*': a * b}[op]
    return (function('calculate', 'Computes an expression', expression=S('Arithmetic expression')),
            rng.choice(['What is {a} {o} {b}?', 'Compute {a} {o} {b}.', 'Please calculate {a} {o} {b}.']).format(a=a, o=op, b=b), {'expression': f'{a} {op} {b}'}, {'value': v}, f'{a} {op} {b} is {v}.')


def stock(rng, w):
    item, n = rng.choice(ITEMS), rng.randint(0, 500)
    return (function('count_stock', 'How many of an article are in store', article=S('The article')),
            rng.choice(['How many {i} do we have?', 'Count the {i} in the store.', 'Are there any {i} left?']).format(i=item), {'article': item}, {'count': n},
            f'There are {n} {item} in the store.' if n else f'There are no {item} left.')


def phone(rng, w):
    name, number = w.name(rng), ' '.join(str(rng.randint(100, 999)) for _ in range(3))
    return (function('find_contact', 'Looks up a person in the address book', name=S('Name of the person')),
            rng.choice(['What is the phone number of {n}?', 'Find the number of {n}.', 'I want to call {n}. What is the number?']).format(n=name), {'name': name}, {'name': name, 'phone': number},
            rng.choice(['The number of {n} is {p}.', "{n}'s phone number is {p}."]).format(n=name, p=number))


def flight(rng, w):
    a, b, day, n = w.city(rng), w.city(rng), date(rng), rng.randint(60, 900)
    return (function('find_flight', 'Finds the cheapest flight', origin=S('City of departure'), destination=S('City of arrival'), date=S('Day as YYYY-MM-DD')),
            rng.choice(['Find a flight from {a} to {b} on {d}.', 'I want to fly from {a} to {b} on {d}.', 'Is there a flight to {b} from {a} on {d}?']).format(a=a, b=b, d=day),
            {'origin': a, 'destination': b, 'date': day}, {'price': n, 'departure': (at := clock(rng))}, f'The cheapest flight from {a} to {b} leaves at {at} and costs {n} euros.')


def event(rng, w):
    name, day, at = w.name(rng), rng.choice(DAYS), clock(rng)
    what = rng.choice(['a meeting', 'lunch', 'dinner', 'a call', 'a lesson', 'a walk'])
    return (function('add_event', 'Adds an event to the calendar', title=S('What it is'), day=S('Day of the week'), time=S('Begin as HH:MM')),
            rng.choice(['Add {w} with {n} on {d} at {t}.', 'Put {w} with {n} into my calendar for {d}, {t}.', 'Schedule {w} with {n} on {d} at {t}.']).format(w=what, n=name, d=day, t=at),
            {'title': f'{what} with {name}', 'day': day, 'time': at}, {'status': 'added'}, f'I added {what} with {name} on {day} at {at}.')


def population(rng, w):
    city, n = w.city(rng), rng.randint(20, 9000) * 1000
    return (function('get_population', 'Number of people who live in a city', city=S('Name of the city')),
            rng.choice(['How many people live in {c}?', 'What is the population of {c}?']).format(c=city), {'city': city}, {'population': n}, f'{n} people live in {city}.')


def money(rng, w):
    n, a, b = rng.randint(1, 2000), *rng.sample(['EUR', 'USD', 'GBP', 'JPY', 'CHF', 'SEK'], 2)
    return (function('convert_money', 'Converts between currencies', amount=I('How much'), source=S('Currency code'), target=S('Currency code')),
            rng.choice(['Convert {n} {a} to {b}.', 'How much is {n} {a} in {b}?', 'What are {n} {a} in {b}?']).format(n=n, a=a, b=b), {'amount': n, 'source': a, 'target': b},
            {'value': (v := rng.randint(1, 4000))}, f'{n} {a} are {v} {b}.')


def note(rng, w):
    text = rng.choice([f'{w.name(rng)} likes {rng.choice(FOODS)}', f'buy {rng.randint(2, 30)} {rng.choice(ITEMS)}', f'call {w.name(rng)} on {rng.choice(DAYS)}', f'the {rng.choice(THINGS)} is {rng.choice(COLORS)}'])
    return (function('save_note', 'Keeps a note', text=S('The note')), rng.choice(['Note: {t}.', 'Save a note: {t}.', 'Write down that: {t}.', 'Please keep this note: {t}.']).format(t=text),
            {'text': text}, {'id': (n := rng.randint(1, 999))}, f'I saved your note as number {n}.')


def order(rng, w):
    n, item, city = rng.randint(1, 60), rng.choice(ITEMS), w.city(rng)
    return (function('order_items', 'Orders articles', article=S('The article'), count=I('How many'), city=S('Where to send them')),
            rng.choice(['Order {n} {i} and send them to {c}.', 'I need {n} {i} in {c}.', 'Send {n} {i} to {c}, please.']).format(n=n, i=item, c=city), {'article': item, 'count': n, 'city': city},
            {'order': (k := rng.randint(1000, 9999))}, f'{n} {item} go to {city}. The order has number {k}.')


def translate(rng, w):
    word, into = rng.choice(THINGS + FOODS + COLORS), rng.choice(['French', 'Spanish', 'German', 'Italian', 'Dutch', 'Polish'])
    return (function('translate', 'Translates a word', word=S('English word'), language=S('Wanted language')),
            rng.choice(['What is "{w}" in {l}?', 'Translate "{w}" to {l}.', 'How do you say {w} in {l}?']).format(w=word, l=into), {'word': word, 'language': into},
            {'translation': (t := w.name(rng).lower())}, f'"{word}" is "{t}" in {into}.')


def birthday(rng, w):
    name, day = w.name(rng), f'{rng.choice(MONTHS)} {rng.randint(1, 28)}'
    return (function('get_birthday', 'Birthday of a person', name=S('Name of the person')), rng.choice(['When is the birthday of {n}?', "When is {n}'s birthday?"]).format(n=name), {'name': name},
            {'birthday': day}, f'The birthday of {name} is on {day}.')


# A parameter of an invented tool: its schema, a value, and how the question names it.
PARTS = {
    'name': lambda rng, w: (S('Name of the person'), w.name(rng), 'for {}'),
    'city': lambda rng, w: (S('The city'), w.city(rng), 'in {}'),
    'day': lambda rng, w: (S('Day of the week'), rng.choice(DAYS), 'on {}'),
    'time': lambda rng, w: (S('Time as HH:MM'), clock(rng), 'at {}'),
    'count': lambda rng, w: (I('How many'), rng.randint(1, 99), '{} times'),
    'color': lambda rng, w: (S('The color'), rng.choice(COLORS), 'in {}'),
    'price': lambda rng, w: (I('Price in euros'), rng.randint(1, 900), 'for {} euros'),
    'month': lambda rng, w: (S('The month'), rng.choice(MONTHS), 'in {}'),
    'job': lambda rng, w: (S('The profession'), rng.choice(JOBS), 'by a {}'),
    'date': lambda rng, w: (S('Day as YYYY-MM-DD'), date(rng), 'on {}'),
}
CLASH = [{'city', 'color', 'month'}, {'day', 'date', 'month'}]
VERBS = 'book open close check start stop cancel print paint repair clean move rent sell buy find show update delete copy wash deliver collect measure'.split()
NOUNS = 'table room car bicycle door garden ticket report file photo machine boat letter package house bill desk song video account window engine plant camera printer'.split()


def invented(rng, w):
    """A tool of a random name and parameters: what to write stands in the question and in the tool, nowhere else."""
    verb, noun, keys = rng.choice(VERBS), rng.choice(NOUNS), []
    for k in rng.sample(list(PARTS), rng.randint(1, 3)):
        if not any(k in c and c & set(keys) for c in CLASH):
            keys.append(k)
    made = {k: PARTS[k](rng, w) for k in keys}
    said = list(made.values())
    rng.shuffle(said)
    ask = f'{verb} the {noun} ' + ' '.join(form.format(v) for _, v, form in said)
    ask = rng.choice(['Please {}.', 'Can you {}?', 'I want you to {}.', '{}.', 'Could you {}?']).format(ask)
    t = function(f'{verb}_{noun}', rng.choice([f'To {verb} a {noun}', f'{verb.capitalize()}s the {noun}', f'Use this to {verb} the {noun}']), **{k: s for k, (s, _, _) in made.items()})
    return (t, ask[0].upper() + ask[1:], {k: v for k, (_, v, _) in made.items()}, {'status': rng.choice(['ok', 'done'])},
            rng.choice([f'Done: {verb} the {noun}.', f'That worked: the request to {verb} the {noun} is done.']))


TOOLS = [weather, weather_units, time_in, timer, mail, lights, search_shop, calculator, stock, phone, flight, event, population, money, note, order, translate, birthday]
MAKERS = TOOLS + [invented] * 14


def draw(rng, w):
    return rng.choice(MAKERS)(rng, w)
