# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prompts for the teacher, drawn at random so that few repeat: prompt(rng) is a first question, follow_up(rng) a second one."""

ANIMALS = """cat dog fox rabbit owl turtle elephant lion mouse bear whale dolphin penguin horse frog bee ant butterfly wolf deer sheep goat duck
parrot spider snail squirrel hedgehog tiger giraffe zebra monkey kangaroo koala octopus shark crab eagle crow swan beaver bat camel""".split()
PLACES = """forest, river, castle, small village, big city, desert, island, mountain, school, farm, library, lighthouse, garden, market, train station,
beach, cave, museum, bakery, harbor, meadow, space station, snowy town, old house, theater, kitchen, park, valley, bridge, rooftop""".replace('\n', ' ').split(', ')
PEOPLE = """girl, boy, old man, grandmother, teacher, baker, doctor, sailor, king, queen, wizard, robot, farmer, painter, musician, inventor, gardener,
pilot, detective, student, knight, princess, shepherd, astronaut, librarian, carpenter, nurse, fisherman, clockmaker, postman""".replace('\n', ' ').split(', ')
NAMES = """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Mia Noah Olivia Paul Rosa Sam Tina Victor Zoe Amir Bella Chen Dora
Elena Farid Gina Hugo Ines Jonas Kim Lena Marco Nina Oscar Priya Quinn Ravi Sofia Tom Uma Wendy Yuki""".split()
THINGS = """lost key, magic lamp, broken clock, red balloon, golden coin, secret map, tiny boat, warm scarf, old book, strange letter, silver bell,
blue stone, music box, paper kite, wooden flute, little star, big umbrella, painted door, glass marble, mysterious seed""".replace('\n', ' ').split(', ')
FEELINGS = "happy sad funny gentle exciting mysterious hopeful calm brave surprising kind quiet adventurous magical".split()
SCIENCE = """gravity, photosynthesis, the water cycle, electricity, magnets, the solar system, volcanoes, earthquakes, rainbows, the moon, the sun, stars,
black holes, atoms, cells, DNA, evolution, the heart, the brain, the lungs, bones, muscles, sleep, dreams, memory, sound, light, heat, energy, friction,
clouds, rain, snow, wind, the seasons, tides, oceans, rivers, mountains, deserts, rainforests, plants, trees, flowers, seeds, bees, dinosaurs, fossils,
bacteria, viruses, vaccines, vitamins, digestion, blood, the eye, the ear, computers, the internet, robots, batteries, engines, airplanes, rockets,
satellites, bridges, clocks, telescopes, microscopes, the periodic table, chemical reactions, acids, metals, glass, paper, plastic, recycling, climate,
pollution, renewable energy, solar panels, wind turbines, food chains, migration, hibernation, camouflage, echolocation, ecosystems, coral reefs,
money, banks, trade, taxes, democracy, laws, maps, history, museums, music, painting, poetry, photography, languages, alphabets, numbers, fractions,
triangles, circles, probability, averages, algorithms, encryption, programming, databases, machine learning""".replace('\n', ' ').split(', ')
ACTIVITIES = """cooking rice, baking bread, growing tomatoes, learning a language, reading more, sleeping better, saving money, studying for a test, running,
swimming, riding a bicycle, playing chess, playing the guitar, drawing animals, taking photos, writing a story, making friends, speaking in public,
cleaning the kitchen, packing for a trip, hiking, camping, fishing, painting a wall, planting a tree, training a dog, caring for a cat, waking up early,
staying calm, being on time, writing an email, giving a gift, planning a party, organizing a desk, learning math, remembering names, drinking more water,
eating vegetables, making tea, making coffee, making soup, knitting, singing, dancing, gardening, learning to code, meditating""".replace('\n', ' ').split(', ')
GROUPS = """fruits, vegetables, colors, animals, birds, countries, cities, rivers, planets, sports, musical instruments, tools, jobs, hobbies, flowers, trees,
drinks, desserts, shapes, languages, oceans, mountains, metals, insects, fish, board games, school subjects, kinds of weather, pieces of clothing,
kinds of furniture, means of transport, spices, famous inventions, kinds of bread, wild animals, farm animals""".replace('\n', ' ').split(', ')
COUNTRIES = """France Italy Spain Germany Japan China India Brazil Egypt Canada Mexico Greece Norway Kenya Peru Australia Turkey Poland Portugal Sweden Ireland
Argentina Thailand Vietnam Morocco Iceland Finland Chile Cuba Nepal""".split()
STYLES = ['', '', '', ' Keep it short.', ' Use simple words.', ' Answer in two sentences.', ' Answer in one paragraph.', ' Explain it to a child.', ' Be brief.',
          ' Use an example.', ' Write three sentences.', ' Please be friendly.']
OPENINGS = ['', '', '', '', 'Please ', 'Can you ', 'Could you ', 'Hi! ', 'Hello, ', 'I am curious: ']


def lower_first(s):
    return s[:1].lower() + s[1:]


def opened(rng, s):
    o = rng.choice(OPENINGS)
    if o.startswith(('Can', 'Could')):
        return o + lower_first(s).rstrip('.') + '?'
    return o + (lower_first(s) if o == 'Please ' else s)


def story(rng):
    hero = rng.choice([rng.choice(ANIMALS), rng.choice(PEOPLE)])
    name = rng.choice(['', '', ' named ' + rng.choice(NAMES)])
    more = rng.choice([f' who finds a {rng.choice(THINGS)}', f' and a {rng.choice(ANIMALS)}', f' in a {rng.choice(PLACES)}',
                       f' who lives in a {rng.choice(PLACES)} and meets a {rng.choice(ANIMALS)}', f' who loses a {rng.choice(THINGS)} in a {rng.choice(PLACES)}'])
    kind = rng.choice(['short story', f'{rng.choice(FEELINGS)} story', f'short {rng.choice(FEELINGS)} story', 'very short story', 'bedtime story', 'short poem'])
    art = 'an' if kind[0] in 'aeiou' else 'a'
    return opened(rng, f'{rng.choice(["Write", "Tell me"])} {art} {kind} about a {hero}{name}{more}.') + rng.choice(['', '', ' Keep it short.', ' Use simple words.'])


def explain(rng):
    t = rng.choice(SCIENCE)
    q = rng.choice(['Explain {}.', 'What is the idea behind {}?', 'How would you describe {}?', 'Tell me about {}.', 'Why does {} matter?', 'What should I know about {}?',
                    'Give me a short explanation of {}.', 'What is interesting about {}?', 'Teach me something about {}.', 'Help me understand {}.']).format(t)
    return (opened(rng, q) if q.endswith('.') else q) + rng.choice(STYLES)


def advice(rng):
    a, n = rng.choice(ACTIVITIES), rng.choice(['two', 'three', 'four', 'five'])
    return rng.choice([f'Give me {n} tips for {a}.', f'What is the best way to start {a}?', f'I want to get better at {a}. What should I do?',
                       f'What are common mistakes when {a}?', f'How do I begin with {a}?', f'Why is {a} good for me?', f'My friend {rng.choice(NAMES)} needs help with {a}. Any advice?']) + rng.choice(STYLES)


def listing(rng):
    n, g = rng.choice(['two', 'three', 'four', 'five']), rng.choice(GROUPS)
    return rng.choice([f'List {n} {g}.', f'Name {n} {g}.', f'Can you name {n} {g}?', f'Give me {n} examples of {g}.', f'Tell me {n} {g} and one fact about each.'])


def animal(rng):
    a, b = rng.sample(ANIMALS, 2)
    return rng.choice([f'What does a {a} eat?', f'Where does a {a} live?', f'Tell me a fact about the {a}.', f'What is the difference between a {a} and a {b}?',
                       f'Describe a {a}.', f'Would a {a} be a good pet?', f'Why is the {a} special?', f'Compare a {a} with a {b}.']) + rng.choice(STYLES)


def country(rng):
    c = rng.choice(COUNTRIES)
    return rng.choice([f'What is the capital of {c}?', f'Tell me about {c}.', f'What food is {c} known for?', f'Why do people visit {c}?', f'What language do people speak in {c}?',
                       f'Name one famous place in {c}.', f'Describe a day in {c}.']) + rng.choice(STYLES[:8])


def small_talk(rng):
    n = rng.choice(NAMES)
    return rng.choice(['Hello!', 'Hi there!', 'How are you today?', f'Hi, my name is {n}.', 'Good morning!', 'What can you do?', 'Can you help me?', 'Tell me a joke.', 'Tell me a fun fact.',
                       'I feel sad today.', 'I am bored. What should I do?', f'I had a great day with {n}!', 'What is your favorite color?', 'Thank you for your help!', 'I am tired.',
                       f'It is {n}\'s birthday. What should I write on the card?', 'I am nervous about a test.', 'What should I eat for dinner?', 'Say something nice.',
                       f'I am {rng.choice(FEELINGS)} because I found a {rng.choice(THINGS)}.', f'I saw a {rng.choice(ANIMALS)} in the {rng.choice(PLACES)} today.'])


def sentence(rng):
    return rng.choice([f'Write one sentence about a {rng.choice(ANIMALS)} and a {rng.choice(THINGS)}.', f'Describe a {rng.choice(PLACES)} in one sentence.',
                       f'Make up a name for a {rng.choice(PEOPLE)} and describe them.', f'Write a short letter from {rng.choice(NAMES)} to {rng.choice(NAMES)} about a {rng.choice(THINGS)}.',
                       f'Write a question about {rng.choice(SCIENCE)} and answer it.', f'What would a {rng.choice(ANIMALS)} say to a {rng.choice(ANIMALS)}?',
                       f'Imagine a {rng.choice(PLACES)} with a {rng.choice(THINGS)}. What happens?', f'Write a short description of a {rng.choice(PEOPLE)} in a {rng.choice(PLACES)}.'])


KINDS = [(story, 26), (explain, 26), (advice, 12), (listing, 7), (animal, 9), (country, 7), (small_talk, 5), (sentence, 8)]


def prompt(rng):
    return rng.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0](rng)


def follow_up(rng):
    return rng.choice(['Tell me more.', 'Can you give an example?', 'Why is that?', 'Thank you! Can you make it shorter?', 'What happens next?', 'Can you say that in simpler words?',
                       'And what is the most important part?', 'Interesting. What else should I know?', 'Summarize it in one sentence.', 'How did you come to that?',
                       f'What would {rng.choice(NAMES)} think about it?', f'Now tell me about a {rng.choice(ANIMALS)}.', 'Thanks. Give me one more idea.', 'Is there anything surprising about it?',
                       lower_first(prompt(rng)).capitalize(), prompt(rng)])
