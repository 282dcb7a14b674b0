# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prompts for the teacher, drawn at random so that few repeat.

prompt(rng) and follow_up(rng, talk) give (question, manner, temperature). A manner's examples (SHOTS) stand before the question where only the teacher reads them;
the student learns to answer like that unasked. Stories are drawn warm, facts cool."""

SYSTEM = 'You are a friendly helper. You use simple words and short, clear sentences.'

ANIMALS = """cat dog fox rabbit owl turtle elephant lion mouse bear whale dolphin penguin horse frog bee ant butterfly wolf deer sheep goat duck
parrot spider snail squirrel hedgehog tiger giraffe zebra monkey kangaroo koala octopus shark crab eagle crow swan beaver bat camel cow pig hen rooster
donkey pony puppy kitten chick lamb otter seal raccoon badger mole lizard snake peacock goose robin sparrow ladybug grasshopper panda hippo rhino""".split()
PLACES = """forest, river, castle, small village, big city, desert, island, mountain, school, farm, library, lighthouse, garden, market, train station,
beach, cave, museum, bakery, harbor, meadow, space station, snowy town, old house, theater, kitchen, park, valley, bridge, rooftop, playground, toy shop, zoo,
treehouse, barn, pond, hospital, classroom, bedroom, attic, boat, tent, bus, windmill, campsite, hill, jungle, pet shop, swimming pool, circus""".replace('\n', ' ').split(', ')
PEOPLE = """girl, boy, old man, grandmother, teacher, baker, doctor, sailor, king, queen, wizard, robot, farmer, painter, musician, inventor, gardener,
pilot, detective, student, knight, princess, shepherd, astronaut, librarian, carpenter, nurse, fisherman, clockmaker, postman, grandfather, dancer, cook, prince,
fireman, bus driver, little brother, big sister, giant, fairy, pirate, dragon, snowman, clown, explorer, singer, tailor, mayor""".replace('\n', ' ').split(', ')
NAMES = """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Mia Noah Olivia Paul Rosa Sam Tina Victor Zoe Amir Bella Chen Dora
Elena Farid Gina Hugo Ines Jonas Kim Lena Marco Nina Oscar Priya Quinn Ravi Sofia Tom Uma Wendy Yuki Max Lily Tim Sue Ella Finn Ruby Jake Lucy Molly Otto
Pia Rosie Toby Nora Eli Maya Luis Ada Theo Ivy Cora Milo June Nico Tara Omar Lulu Pip""".split()
THINGS = """lost key, magic lamp, broken clock, red balloon, golden coin, secret map, tiny boat, warm scarf, old book, strange letter, silver bell,
blue stone, music box, paper kite, wooden flute, little star, big umbrella, painted door, glass marble, mysterious seed, soft blanket, red ball, toy train, birthday cake,
shiny shell, green hat, yellow bus, old bicycle, pair of boots, jar of honey, basket of apples, box of crayons, teddy bear, small drum, white feather, wooden spoon,
big puddle, paper plane, new backpack, pumpkin, snow globe, sandcastle, flashlight, ladder, pie, carrot, mirror, rope, bucket, picture""".replace('\n', ' ').split(', ')
FEELINGS = "happy sad funny gentle exciting mysterious hopeful calm brave surprising kind quiet adventurous magical".split()
MOODS = """happy sad shy brave curious lonely sleepy proud angry excited worried hungry kind clever lazy busy grumpy tiny lost cheerful scared bored gentle silly
patient careful jealous friendly noisy quiet young old""".split()
EVENTS = """it starts to rain, a storm comes, someone gets lost, they make a new friend, something breaks, they find a surprise, they help a stranger, they learn to share,
they have to be brave, a plan goes wrong, they say sorry, they build something together, night falls, snow covers everything, they miss the bus, they cook together, they keep a promise,
they tell the truth, they win a race, they lose a race, they plant a seed, they find the way home, they learn something new, they hear a strange sound, the lights go out,
they give something away, they wait for spring, they try again and again, they have a picnic, they fix an old thing""".replace('\n', ' ').split(', ')
LESSONS = """sharing, honesty, patience, courage, kindness, friendship, being careful, asking for help, saying sorry, trying again, listening, teamwork, helping others, being yourself, saying thank you,
keeping promises, not giving up, being on time, telling the truth, caring for nature""".replace('\n', ' ').split(', ')
SCIENCE = """gravity, photosynthesis, the water cycle, electricity, magnets, the solar system, volcanoes, earthquakes, rainbows, the moon, the sun, stars,
black holes, atoms, cells, DNA, evolution, the heart, the brain, the lungs, bones, muscles, sleep, dreams, memory, sound, light, heat, energy, friction,
clouds, rain, snow, wind, the seasons, tides, oceans, rivers, mountains, deserts, rainforests, plants, trees, flowers, seeds, bees, dinosaurs, fossils,
bacteria, viruses, vaccines, vitamins, digestion, blood, the eye, the ear, computers, the internet, robots, batteries, engines, airplanes, rockets,
satellites, bridges, clocks, telescopes, microscopes, acids, metals, glass, paper, plastic, recycling, climate, pollution, solar panels, wind turbines,
food chains, migration, hibernation, camouflage, coral reefs, money, banks, trade, taxes, democracy, laws, maps, history, museums, music, painting, poetry,
photography, languages, alphabets, numbers, fractions, triangles, circles, algorithms, programming, machine learning""".replace('\n', ' ').split(', ')
EVERYDAY = """a fridge, an oven, a lamp, a mirror, a pencil, soap, a key, a lock, a zipper, an umbrella, a bicycle, a bus, a train, a traffic light, a letter, a stamp, a phone, a camera, a radio,
a kettle, a spoon, a plate, bread, milk, cheese, butter, salt, sugar, honey, chocolate, rice, an egg, an apple, a tomato, tea, coffee, juice, ice, steam, smoke, fire, a candle, a match, wood, stone,
sand, mud, a shadow, an echo, a bubble, a balloon, a kite, a ball, a boat, a ladder, a wheel, a bridge, a door, a window, a roof, a bed, a pillow, a blanket, a coat, a hat, shoes, a button,
a needle, a scarf, a book, a newspaper, a map, a compass, a calendar, a clock, a coin, a bank, a shop, a market, a school, a library, a hospital, a garden, a farm, a forest, a river, a lake, the sea,
an island, a hill, a cave, a storm, thunder, lightning, fog, frost, a leaf, a root, a flower, a seed, grass, moss, a nest, a feather, a shell, a bone, a tooth, hair, skin, a voice, a smile, a birthday,
a holiday, a neighbor, a friend, a family, a teacher, a doctor, a game, a song, a drum, a piano, a guitar, a painting, a joke, a story, a question, a secret, a promise, a team""".replace('\n', ' ').split(', ')
WORDS = """brave, honest, patient, curious, kind, generous, polite, careful, gentle, wise, stubborn, proud, jealous, lonely, grateful, hopeful, lazy, clever, quick, heavy, hollow, fragile, ancient, modern,
rare, common, empty, crowded, distant, narrow, smooth, rough, bright, dim, silent, loud, fresh, rotten, sour, bitter, journey, harvest, shelter, neighbor, treasure, courage, freedom, habit, skill, mistake,
borrow, repair, explore, invent, discover, protect, whisper, wander, gather, celebrate, forgive, compare, measure, imagine, promise, balance, hero, rumor, recipe, orchard, village, horizon, echo""".replace('\n', ' ').split(', ')
WHYS = """is the sky blue, do leaves fall in autumn, do we sleep, does ice float, do birds sing, do cats purr, do dogs wag their tails, is the sea salty, do we need water, do we yawn, do we dream,
does the moon change its shape, do we have seasons, do plants need light, do bees make honey, does bread rise, do onions make us cry, do we brush our teeth, do we wash our hands, is it dark at night,
do stars twinkle, does metal rust, do boats float, do planes fly, do we get hungry, do we laugh, do people read books, do we wear coats in winter, is snow white, is grass green, do leaves change color,
does thunder come after lightning, do we have bones, do we breathe, does the heart beat, do we need friends, do fish live in water, do some animals sleep all winter, do people make music, is fire hot,
is exercise good for us, do we say please, do clocks tick, do balloons pop, do birds fly south, do spiders make webs, do we grow old, do we need trees, is it good to rest, is it good to share""".replace('\n', ' ').split(', ')
ACTIVITIES = """cooking rice, baking bread, growing tomatoes, learning a language, reading more, sleeping better, saving money, studying for a test, running,
swimming, riding a bicycle, playing chess, playing the guitar, drawing animals, taking photos, writing a story, making friends, speaking in public,
cleaning the kitchen, packing for a trip, hiking, camping, fishing, painting a wall, planting a tree, training a dog, caring for a cat, waking up early,
staying calm, being on time, writing an email, giving a gift, planning a party, organizing a desk, learning math, remembering names, drinking more water,
eating vegetables, making tea, making coffee, making soup, knitting, singing, dancing, gardening, learning to code, meditating, making a sandwich, washing clothes, folding a shirt,
building a snowman, flying a kite, making a salad, feeding birds, wrapping a gift, keeping a diary, doing homework, cleaning a bedroom, setting the table""".replace('\n', ' ').split(', ')
GROUPS = """fruits, vegetables, colors, animals, birds, countries, cities, rivers, planets, sports, musical instruments, tools, jobs, hobbies, flowers, trees,
drinks, desserts, shapes, languages, oceans, mountains, metals, insects, fish, board games, school subjects, kinds of weather, pieces of clothing,
kinds of furniture, means of transport, spices, famous inventions, kinds of bread, wild animals, farm animals, toys, things in a kitchen, things in a school bag, things to do on a rainy day,
things to take to the beach, ways to say hello, ways to be kind, good habits, things that are round, things that are cold, things that are soft, things that can fly""".replace('\n', ' ').split(', ')
COUNTRIES = """France Italy Spain Germany Japan China India Brazil Egypt Canada Mexico Greece Norway Kenya Peru Australia Turkey Poland Portugal Sweden Ireland
Argentina Thailand Vietnam Morocco Iceland Finland Chile Cuba Nepal""".split()
WEATHER = ['on a sunny day', 'on a rainy night', 'in winter', 'in spring', 'in summer', 'in autumn', 'early in the morning', 'on a windy day', 'at night', 'on a snowy day', 'after school', 'on a birthday']

# Examples that a manner's chats begin with, for the teacher alone: its answers take their length and tone.
SHOTS = {
    'tale': [('Write a short story about a shy frog who finds a red ball.',
              'Once there was a shy frog named Pip. Pip lived by a small pond and did not talk to anyone. One day, he found a red ball in the grass. He pushed it with his nose, and it rolled '
              'into the water with a splash. A little duck laughed and pushed it back. All afternoon they rolled the ball to each other. When the sun went down, the duck asked, "Will you play '
              'again tomorrow?" Pip smiled. "Yes," he said. "I would love to."'),
             ('Tell me a story about an old baker on a snowy day.',
              'It was snowing, and nobody came to the bakery. Old Mr. Hill looked at his warm bread and felt sad. Then he had an idea. He put the bread in a basket, pulled on his boots, and '
              'walked from door to door. The children cheered when they saw him. Their mother gave him hot soup, and he sat by the fire until the snow stopped. "Tomorrow I will bring cake," he '
              'said, and everyone clapped.')],
    'fact': [('What is a kettle?', 'A kettle is a pot with a lid and a spout. We use it to boil water, for example to make tea.'),
             ('Why do we wear coats in winter?', 'In winter the air is cold. A coat keeps the warmth of our body close to us, so we do not freeze.'),
             ('Tell me about owls.', 'Owls are birds that hunt at night. They have big eyes and very good ears. They fly so quietly that a mouse does not hear them coming.')],
    'list': [('Give me three tips for packing a bag.',
              '1. Put the heavy things at the bottom.\n2. Roll your clothes, so they need less room.\n3. Keep your water where you can reach it.'),
             ('Name four colors.', 'Red, blue, green, and yellow.'),
             ('What do I need for making toast?', 'You need bread, a toaster, and some butter. Put the bread in, wait until it is brown, and spread the butter on it.')],
    'talk': [('Hi, my name is Ada.', 'Hello Ada, nice to meet you! What would you like to do today?'),
             ('I am sad because I broke my cup.', 'Oh no, I am sorry about your cup. Maybe we can find a new one that you like just as much.'),
             ('I saw a deer in the forest.', 'How lovely! Deer are very quiet, so you must have been quiet too. Was it alone?')],
    'line': [('Write one sentence about a cat and a drum.', 'The cat jumped on the drum and ran away from the loud noise.'),
             ('Make this sentence longer: Tom walked home.', 'Tom walked home through the rain with a wet hat and a big smile.'),
             ('Describe an old ship.', 'The ship is old and its paint is gone. Its sails are full of holes. Still, the captain is proud of it.')],
}
STYLES = ['', '', '', '', '', ' Keep it short.', ' Use simple words.', ' Explain it to a child.', ' Be brief.', ' Please be friendly.']


# The most tokens of an answer: a longer one mostly goes round in circles.
MOST = {'tale': 200, 'fact': 90, 'list': 110, 'talk': 70, 'line': 90}

ON = 'beach island mountain farm bridge rooftop playground boat bus hill'.split()
NOUNS = {w for group in (ANIMALS, NAMES, PLACES, PEOPLE, THINGS, SCIENCE, EVERYDAY, WORDS) for s in group for w in s.lower().split() if len(w) > 3 or s in NAMES} - {'small', 'little', 'story', 'question', 'joke', 'kind', 'short', 'word'}


def an(s):
    return ('an ' if s[0] in 'aeiou' else 'a ') + s


def where(rng, the=False):
    p = rng.choice(PLACES)
    return ('on ' if p.split()[-1] in ON else 'in ') + ('the ' + p if the else an(p))


def opened(rng, s):
    o = rng.choice(['', '', '', '', 'Please ', 'Can you ', 'Could you ', 'Hi! ', 'Hello! '])
    if o.startswith('C'):
        return o + s[0].lower() + s[1:].rstrip('.') + '?'
    return o + (s[0].lower() + s[1:] if o == 'Please ' else s)


def hero(rng):
    who = rng.choice([rng.choice(ANIMALS), rng.choice(PEOPLE)])
    who = an(rng.choice([who, f'{rng.choice(MOODS)} {who}']))
    return who + rng.choice(['', f' named {rng.choice(NAMES)}', f' called {rng.choice(NAMES)}'])


def story(rng):
    a, thing, place, event = hero(rng), an(rng.choice(THINGS)), where(rng), rng.choice(EVENTS)
    about = rng.choice([f'{a} who finds {thing}', f'{a} and {hero(rng)}', f'{a} {place}', f'{a} who lives {place}', f'{a} who loses {thing}', f'{a} who wants {thing}',
                        f'{a} and {thing}', f'{a} {place}, where {event}', f'{a}. In the story, {event}', f'{a} {rng.choice(WEATHER)}', f'{a} who makes {thing} for a friend',
                        f'{a} who learns about {rng.choice(LESSONS)}', f'{a} who is afraid of {an(rng.choice(ANIMALS))}', f'two friends, {rng.choice(NAMES)} and {rng.choice(NAMES)}, {place}'])
    kind = rng.choice(['short story', 'story', f'{rng.choice(FEELINGS)} story', f'short {rng.choice(FEELINGS)} story', 'very short story', 'bedtime story', 'little story', 'simple story'])
    text = rng.choice([f'Write {an(kind)} about {about}.', f'Tell me {an(kind)} about {about}.', f'I would like {an(kind)} about {about}.', f'Make up {an(kind)} about {about}.'])
    if rng.random() < 0.12:
        text = f'Write a short story. Use the words "{rng.choice(ANIMALS)}", "{rng.choice(THINGS).split()[-1]}" and "{rng.choice(WORDS)}".'
    return opened(rng, text) if text[0] in 'WTM' else text, 'tale', 0.8


def poem(rng):
    about = rng.choice([hero(rng), an(rng.choice(THINGS)), an(rng.choice(PLACES)), rng.choice(SCIENCE), rng.choice(LESSONS)])
    return opened(rng, rng.choice([f'Write a short poem about {about}.', f'Write four lines about {about} that rhyme.'])), 'line', 0.8


def explain(rng):
    t = rng.choice(SCIENCE + EVERYDAY)
    how = 'How do {} work?' if t[-1] == 's' and not t.startswith('a ') else 'How does {} work?'
    q = rng.choice(['Explain {}.', how, 'How would you describe {}?', 'Tell me about {}.', 'Why is {} important?', 'What should I know about {}?', 'Give me a short explanation of {}.',
                    'What is interesting about {}?', 'Teach me something about {}.', 'Help me understand {}.', 'Tell me one fact about {}.', 'What do people use {} for?']).format(t)
    return (opened(rng, q) if q.endswith('.') else q) + rng.choice(STYLES), 'fact', 0.3


def everyday(rng):
    t = rng.choice(EVERYDAY)
    return rng.choice([f'What is {t}?', f'What is {t}?', f'What is {t} used for?', f'Describe {t}.', f'Where can I find {t}?', f'What does {t} look like?', f'Who needs {t}?', f'Tell me about {t}.',
                       f'What is {t} made of?']) + rng.choice(STYLES), 'fact', 0.3


def why(rng):
    return rng.choice(['Why {}?', 'Why {}?', 'Do you know this? Why {}?', 'I want to know: why {}?']).format(rng.choice(WHYS)) + rng.choice(STYLES), 'fact', 0.3


def word(rng):
    w = rng.choice(WORDS)
    return rng.choice([(f'What does "{w}" mean?', 'fact', 0.3), (f'Define the word {w}.', 'fact', 0.3),
                       (f'Use the word "{w}" in a sentence.', 'line', 0.7), (f'What does it mean to be {w}?' if w in WORDS[:24] else f'Explain the word {w} to a child.', 'fact', 0.3),
                       (f'Write two sentences with the word "{w}".', 'line', 0.7)])


def advice(rng):
    a, n = rng.choice(ACTIVITIES), rng.choice(['two', 'three', 'four'])
    return rng.choice([(f'Give me {n} tips for {a}.', 'list', 0.5), (f'What is the best way to start {a}?', 'list', 0.5), (f'I want to get better at {a}. What should I do?', 'list', 0.5),
                       (f'How do I begin with {a}?', 'list', 0.5), (f'Explain {a} in {n} steps.', 'list', 0.5), (f'Why do people like {a}?', 'list', 0.5),
                       (f'My friend {rng.choice(NAMES)} needs help with {a}. Any advice?', 'list', 0.5), (f'What do I need for {a}?', 'list', 0.5),
                       (f'Give me one tip for {a}.', 'list', 0.5)])


def listing(rng):
    n, g = rng.choice(['two', 'three', 'four', 'five']), rng.choice(GROUPS)
    return rng.choice([(f'List {n} {g}.', 'list', 0.5), (f'Name {n} {g}.', 'list', 0.5), (f'Can you name {n} {g}?', 'list', 0.5), (f'Give me {n} examples of {g}.', 'list', 0.5),
                       (f'Tell me {n} {g} and one fact about each.', 'list', 0.5)])


def animal(rng):
    a, b = rng.sample(ANIMALS, 2)
    return rng.choice([f'What does {an(a)} eat?', f'Where does {an(a)} live?', f'Tell me a fact about the {a}.', f'Describe {an(a)}.', f'Would {an(a)} be a good pet?', f'Why is the {a} special?',
                       f'What sound does {an(a)} make?', f'What does {an(a)} look like?', f'How does {an(a)} move?']) + rng.choice(STYLES), 'fact', 0.3


def compare(rng):
    pool = rng.choice([ANIMALS, ANIMALS, [t.split(' ', 1)[-1] for t in EVERYDAY if t.startswith('a ')], PLACES])
    a, b = rng.sample(pool, 2)
    return rng.choice([f'What is the difference between {an(a)} and {an(b)}?', f'Compare {an(a)} with {an(b)}.', f'Which is bigger, {an(a)} or {an(b)}?', f'How are {an(a)} and {an(b)} alike?',
                       f'Would you like {an(a)} or {an(b)}?']) + rng.choice(STYLES), 'fact', 0.3


def country(rng):
    c = rng.choice(COUNTRIES)
    return rng.choice([f'What is the capital of {c}?', f'Tell me about {c}.', f'What food is {c} known for?', f'Why do people visit {c}?', f'What language do people speak in {c}?',
                       f'Name one famous place in {c}.', f'Describe a day in {c}.', f'Where is {c}?', f'What is the weather like in {c}?']) + rng.choice(STYLES), 'fact', 0.3


def small_talk(rng):
    n, m = rng.choice(NAMES), rng.choice(MOODS)
    return rng.choice(['Hello!', 'Hi there!', 'How are you today?', f'Hi, my name is {n}.', 'Good morning!', 'What can you do?', 'Can you help me?', 'Tell me a joke.', 'Tell me a fun fact.',
                       f'I feel {m} today.', f'My friend {n} is {m}. What can I do?', 'I am bored. What should I do?', f'I had a great day with {n}!', 'Thank you for your help!', f'Good night, I am {m}.',
                       f'It is {n}\'s birthday. What should I write on the card?', f'I am {m} about a test.', 'What should I eat for dinner?', 'Say something nice.', f'I made {an(rng.choice(THINGS))} today!',
                       f'I am happy because I found {an(rng.choice(THINGS))}.', f'I saw {an(rng.choice(ANIMALS))} {where(rng, True)} today.', f'I lost my {rng.choice(THINGS).split()[-1]}.',
                       f'I want to go to the {rng.choice(PLACES)} with {n}.', f'My {rng.choice(ANIMALS)} is called {n}.', f'I like {rng.choice(ACTIVITIES)}.', f'Today I tried {rng.choice(ACTIVITIES)}.']), \
        'talk', 0.6


def sentence(rng):
    a, t, p, n = rng.choice(ANIMALS), rng.choice(THINGS), rng.choice(PLACES), rng.choice(NAMES)
    return rng.choice([(f'Write one sentence about {an(a)} and {an(t)}.', 'line', 0.8), (f'Describe {an(p)} in one sentence.', 'line', 0.8), (f'Make up a name for {hero(rng)} and describe them.', 'line', 0.8),
                       (f'Write a short letter from {n} to {rng.choice(NAMES)} about {an(t)}.', 'line', 0.8), (f'What would {an(a)} say to {an(rng.choice(ANIMALS))}?', 'line', 0.8),
                       (f'Imagine {an(p)} with {an(t)}. What happens?', 'line', 0.8), (f'Describe {hero(rng)} {where(rng)}.', 'line', 0.8), (f'Describe {an(t)}.', 'line', 0.6),
                       (f'Write three sentences about {an(p)} {rng.choice(WEATHER)}.', 'line', 0.8), (f'Write a short note to {n} to say {rng.choice(["thank you", "sorry", "hello", "good luck", "happy birthday"])}.', 'line', 0.6),
                       (f'Give a good title for a story about {hero(rng)}.', 'line', 0.8), (f'How does a story about {hero(rng)} begin?', 'line', 0.8),
                       (f'Write a short dialogue between {n} and {hero(rng)}.', 'line', 0.8)])


def rewrite(rng):
    who, m, t, p = rng.choice(NAMES), rng.choice(MOODS), an(rng.choice(THINGS)), where(rng, True)
    s = rng.choice([f'{who} found {t} {p}.', f'{who} saw {an(rng.choice(ANIMALS))} {p} and was {m}.', f'The {m} {rng.choice(ANIMALS)} sat {p}.', f'{who} likes {rng.choice(ACTIVITIES)} with a friend.',
                    f'{who} walked home {rng.choice(WEATHER)} with {t}.'])
    return rng.choice(['Say this in other words: {}', 'Rewrite this sentence: {}', 'Make this sentence longer: {}', 'Continue: {}', 'What happens next? {}', 'Write this sentence in a funny way: {}']).format(s), \
        'line', 0.6


KINDS = [(story, 42), (explain, 10), (everyday, 7), (why, 5), (word, 4), (advice, 6), (listing, 5), (animal, 4), (compare, 1), (country, 2), (small_talk, 8), (sentence, 10), (rewrite, 3), (poem, 1)]


def prompt(rng):
    return rng.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0](rng)


def follow_up(rng, talk):
    """A further question after a talk's answer, or None to leave it there."""
    if rng.random() > 0.3:
        return None
    question, answer = talk[-2]['content'], talk[-1]['content']
    if len(answer) > 500:
        return None
    if 'story' in question.lower():
        return rng.choice([('What happens next?', 'line', 0.7), ('What is the lesson of the story?', 'fact', 0.4), ('Thank you! Give it a title.', 'list', 0.5), ('Tell it again in two sentences.', 'line', 0.5),
                           ('Who is in the story?', 'fact', 0.3), ('How does the story end?', 'fact', 0.4), ('Where does the story happen?', 'fact', 0.3), ('Thank you, I like it!', 'talk', 0.5), prompt(rng)])
    return rng.choice([('Tell me more.', 'fact', 0.5), ('Can you give an example?', 'fact', 0.5), ('Why is that?', 'fact', 0.4), ('Can you say that in simpler words?', 'fact', 0.4),
                       ('Say it in one sentence.', 'fact', 0.3), ('Thank you!', 'talk', 0.5), ('Thanks. Give me one more idea.', 'list', 0.6), prompt(rng), prompt(rng), prompt(rng)])
