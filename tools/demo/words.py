# SPDX-License-Identifier: MIT OR Apache-2.0
"""Words and facts that templates draw from. HELD names and cities are in no training chat: tests of copying use only them."""

NAMES = """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Mia Noah Olivia Paul Rosa Sam Tina Victor Zoe Amir Bella Chen Dora Elena Farid
Gina Hugo Ines Jonas Kim Lena Marco Nina Oscar Priya Quinn Ravi Sofia Tom Uma Wendy Yuki Ada Adam Agnes Aisha Alan Albert Alice Alma Andre Angela Anton
Arthur Astrid Audrey Barbara Basil Beatrice Bernard Boris Brian Bruno Carl Carla Carmen Cecil Celia Charles Chloe Claude Colin Cora Daniel Daria Diana
Diego Dylan Edgar Edith Edward Eli Elias Ellen Elsa Emil Eric Esther Eva Fatima Finn Flora Frank Frida Gabriel George Gloria Greta Gustav Hana Hannah
Harold Hassan Hector Helen Ian Ida Igor Irene Isaac Ivan Ivy Jacob James Jane Jasmine Jean Joan Joel John Jorge Josef Judith Julia Karin Karl Khalid Klara
Lara Laura Layla Leila Leon Lewis Liam Lily Linda Louis Lucas Lucy Luis Lydia Magda Malik Marcel Margaret Maria Martin Mary Mateo Maya Max Mei Michael Mila
Mira Mohamed Monica Nadia Naomi Natalie Nathan Nicole Nils Nora Omar Otto Pablo Pedro Peter Petra Philip Rachel Ralph Rita Robert Robin Roman Ruth Ryan Sana
Sara Selma Simon Stella Stefan Susan Tara Teresa Theo Thomas Tobias Ursula Vera Vincent Walter Willa William Xenia Yara Yusuf Zara""".split()
HELD_NAMES = """Ottilie Thorvald Zuzanna Bartek Femke Hamish Jamila Kwame Mireille Anneke Leocadia Ignatius Marisol Dmitri Siobhan Tadeusz Yolanda Wilhelmina
Casimir Drusilla Evander Giselle Ludmila Matthias Nikolai Osvaldo Philippa Raimund Saskia Ulrich""".split()

CITIES = """Paris London Berlin Madrid Rome Tokyo Oslo Cairo Lima Delhi Dublin Vienna Prague Athens Lisbon Boston Chicago Denver Seattle Toronto Sydney Nairobi
Seoul Bangkok Hanoi Zurich Warsaw Helsinki Havana Quito Amsterdam Antwerp Ankara Austin Baghdad Bali Barcelona Basel Beijing Beirut Belgrade Bern Bogota Bonn
Brussels Budapest Calgary Canberra Caracas Casablanca Cologne Copenhagen Dallas Damascus Dresden Dubai Edinburgh Florence Frankfurt Geneva Genoa Glasgow Granada
Hamburg Houston Istanbul Jakarta Jerusalem Kiev Krakow Kyoto Lagos Leipzig Liverpool Lyon Manchester Manila Marseille Melbourne Miami Milan Minsk Montreal Moscow
Mumbai Munich Naples Nice Osaka Ottawa Oxford Palermo Panama Perth Phoenix Porto Portland Reykjavik Riga Rotterdam Salzburg Santiago Seville Shanghai Singapore
Sofia Stockholm Stuttgart Tallinn Tehran Tunis Valencia Vancouver Venice Vilnius Wellington Zagreb""".split()
HELD_CITIES = """Tampere Graz Ghent Utrecht Leeds Turin Dakar Malaga Izmir Cusco Kumasi Sapporo Tartu Odense Bilbao Rennes Medellin Nagoya Aarhus Bruges Cardiff
Gdansk Hobart Innsbruck Kazan Linz Mombasa Nantes Plovdiv Tromso""".split()

CAPITALS = dict(pair.split(':') for pair in """France:Paris,Italy:Rome,Spain:Madrid,Germany:Berlin,Japan:Tokyo,China:Beijing,India:New Delhi,Brazil:Brasilia,Egypt:Cairo,
Canada:Ottawa,Mexico:Mexico City,Greece:Athens,Norway:Oslo,Kenya:Nairobi,Peru:Lima,Australia:Canberra,Turkey:Ankara,Poland:Warsaw,Portugal:Lisbon,Sweden:Stockholm,
Ireland:Dublin,Argentina:Buenos Aires,Thailand:Bangkok,Vietnam:Hanoi,Morocco:Rabat,Iceland:Reykjavik,Finland:Helsinki,Chile:Santiago,Cuba:Havana,Nepal:Kathmandu,
England:London,Scotland:Edinburgh,Austria:Vienna,Switzerland:Bern,Belgium:Brussels,the Netherlands:Amsterdam,Denmark:Copenhagen,Hungary:Budapest,Romania:Bucharest,
Bulgaria:Sofia,Croatia:Zagreb,Serbia:Belgrade,Ukraine:Kyiv,Russia:Moscow,Estonia:Tallinn,Latvia:Riga,Lithuania:Vilnius,Iran:Tehran,Iraq:Baghdad,Lebanon:Beirut,
Syria:Damascus,Jordan:Amman,Saudi Arabia:Riyadh,Pakistan:Islamabad,Bangladesh:Dhaka,Indonesia:Jakarta,the Philippines:Manila,South Korea:Seoul,Malaysia:Kuala Lumpur,
New Zealand:Wellington,Nigeria:Abuja,Ghana:Accra,Ethiopia:Addis Ababa,Tunisia:Tunis,Algeria:Algiers,Colombia:Bogota,Venezuela:Caracas,Ecuador:Quito,Bolivia:La Paz,
Uruguay:Montevideo,the United States:Washington,Mongolia:Ulaanbaatar""".replace('\n', '').split(','))

OPPOSITES = dict(pair.split(':') for pair in """hot:cold,big:small,up:down,left:right,day:night,black:white,fast:slow,old:young,rich:poor,happy:sad,open:closed,full:empty,
light:dark,wet:dry,hard:soft,high:low,early:late,near:far,long:short,strong:weak,loud:quiet,clean:dirty,heavy:light,thick:thin,wide:narrow,deep:shallow,true:false,
good:bad,begin:end,win:lose,love:hate,friend:enemy,push:pull,give:take,buy:sell,inside:outside,above:below,always:never,easy:difficult,cheap:expensive""".replace('\n', '').split(','))
SOUNDS = dict(pair.split(':') for pair in """cat:meow,dog:woof,cow:moo,sheep:baa,duck:quack,pig:oink,horse:neigh,lion:roar,owl:hoot,frog:ribbit,bee:buzz,snake:hiss,
rooster:cock-a-doodle-doo,mouse:squeak,crow:caw,wolf:howl,donkey:hee-haw,turkey:gobble,chicken:cluck,bird:tweet""".replace('\n', '').split(','))
LEGS = {'cat': 4, 'dog': 4, 'horse': 4, 'cow': 4, 'spider': 8, 'ant': 6, 'bee': 6, 'bird': 2, 'snake': 0, 'fish': 0, 'duck': 2, 'octopus': 0, 'beetle': 6, 'lion': 4, 'frog': 4, 'butterfly': 6}
TINTS = dict(pair.split(':') for pair in """the sky:blue,grass:green,snow:white,coal:black,a banana:yellow,a lemon:yellow,a strawberry:red,a tomato:red,an orange:orange,
a carrot:orange,milk:white,chocolate:brown,a frog:green,the sun:yellow,blood:red,a cucumber:green,salt:white,a crow:black,a flamingo:pink,a leaf:green""".replace('\n', '').split(','))
FACTS = [('How many days are in a week?', 'A week has 7 days.'), ('How many months are in a year?', 'A year has 12 months.'), ('How many hours are in a day?', 'A day has 24 hours.'),
         ('How many minutes are in an hour?', 'An hour has 60 minutes.'), ('How many seconds are in a minute?', 'A minute has 60 seconds.'),
         ('How many days are in a year?', 'A year has 365 days, and a leap year has 366.'), ('What is the largest planet?', 'The largest planet of our solar system is Jupiter.'),
         ('Which planet do we live on?', 'We live on the planet Earth.'), ('What is the closest star to Earth?', 'The closest star to Earth is the Sun.'),
         ('What do bees make?', 'Bees make honey.'), ('What is ice made of?', 'Ice is frozen water.'), ('At what temperature does water boil?', 'Water boils at 100 degrees Celsius.'),
         ('At what temperature does water freeze?', 'Water freezes at 0 degrees Celsius.'), ('How many legs does a spider have?', 'A spider has 8 legs.'),
         ('What is the largest ocean?', 'The largest ocean is the Pacific Ocean.'), ('What is the highest mountain?', 'The highest mountain is Mount Everest.'),
         ('What is the largest animal?', 'The largest animal is the blue whale.'), ('What is the fastest land animal?', 'The fastest land animal is the cheetah.'),
         ('How many letters does the English alphabet have?', 'The English alphabet has 26 letters.'), ('What is the first letter of the alphabet?', 'The first letter of the alphabet is A.'),
         ('How many continents are there?', 'There are seven continents: Africa, Antarctica, Asia, Australia, Europe, North America and South America.'),
         ('Name the four seasons.', 'The four seasons are spring, summer, autumn and winter.'), ('Where does the sun rise?', 'The sun rises in the east.'),
         ('Where does the sun set?', 'The sun sets in the west.'), ('What do plants need to grow?', 'Plants need water, light, air and soil to grow.'),
         ('Who wrote Romeo and Juliet?', 'William Shakespeare wrote Romeo and Juliet.'), ('How many sides does a triangle have?', 'A triangle has 3 sides.'),
         ('How many sides does a square have?', 'A square has 4 sides.'), ('How many strings does a violin have?', 'A violin has 4 strings.'),
         ('What is H2O?', 'H2O is water.'), ('Which animal is known as the king of the jungle?', 'The lion is known as the king of the jungle.'),
         ('How many colors does a rainbow have?', 'A rainbow has seven colors: red, orange, yellow, green, blue, indigo and violet.'),
         ('What color do you get from blue and yellow?', 'Blue and yellow make green.'), ('What color do you get from red and yellow?', 'Red and yellow make orange.'),
         ('What color do you get from red and blue?', 'Red and blue make purple.')]

DAYS = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split()
MONTHS = 'January February March April May June July August September October November December'.split()
COLORS = 'red blue green yellow black white orange purple brown gray pink silver golden'.split()
ITEMS = """apples pears books pencils cups chairs candles cookies stamps shirts tickets lamps plates eggs lemons bottles balls boxes cards coins flowers hats keys
marbles oranges pens spoons stones toys towels""".split()
ANIMALS = """cat dog fox rabbit owl turtle elephant lion mouse bear whale dolphin penguin horse frog bee ant butterfly wolf deer sheep goat duck parrot spider snail
squirrel hedgehog tiger giraffe zebra monkey kangaroo koala octopus shark crab eagle crow swan beaver bat camel""".split()
PETS = 'cat dog rabbit hamster parrot goldfish turtle pony mouse canary'.split()
JOBS = 'teacher baker doctor sailor farmer painter musician gardener pilot nurse carpenter cook engineer writer driver singer dentist lawyer'.split()
FOODS = 'pizza soup bread rice pasta salad cake cheese apples chocolate pancakes noodles potatoes fish tomatoes ice cream'.replace('ice cream', 'ice-cream').split()
THINGS = 'key lamp clock balloon coin map boat scarf book letter bell stone kite flute umbrella door marble seed bicycle phone wallet camera ring ticket'.split()
SKIES = 'sunny cloudy rainy windy snowy foggy clear stormy'.split()
SYLLABLES = 'ba be bo da de do ka ko la le lo ma mi mo na ne no ra ri ro sa se so ta te to va vi wa zu lin mar ton vel dor fen gar hal ron'.split()


class World:
    """The names and cities of one side: those of training, or those held out."""

    def __init__(self, held=False):
        self.names, self.cities, self.held = (HELD_NAMES, HELD_CITIES, True) if held else (NAMES, CITIES, False)

    def name(self, rng):
        """A known name, or an invented one, that copying is learnt and not a list."""
        if self.held or rng.random() < 0.7:
            return rng.choice(self.names)
        return ''.join(rng.choices(SYLLABLES, k=rng.randint(2, 3))).capitalize()

    def city(self, rng):
        if self.held or rng.random() < 0.8:
            return rng.choice(self.cities)
        return ''.join(rng.choices(SYLLABLES, k=rng.randint(2, 4))).capitalize()
